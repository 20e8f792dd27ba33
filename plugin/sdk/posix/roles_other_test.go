//go:build !linux

package posix_test

// playRole is for tests of process trees, which only Linux has.
func playRole() {}
