//go:build !unix

package engine

// socketGroup is the group that may use a socket: these systems have none.
func socketGroup(string) string { return "" }
