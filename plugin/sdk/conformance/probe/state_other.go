//go:build unix && !linux

package main

// printState says nothing where there is no /proc to ask.
func printState([]string) error { return nil }
