//go:build !unix

package catalog

// CheckTrust has nothing to go by here: modes do not say who may write.
func CheckTrust(string) error { return nil }
