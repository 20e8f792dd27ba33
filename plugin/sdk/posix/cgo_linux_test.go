//go:build cgo

package posix_test

// threadsOfC is how many more threads a process with C in it has.
const threadsOfC = 1
