//go:build cgo

package posix

// runtimeThreads are those of the Go runtime that run no Go code: its monitor and,
// in a program that has C in it, what starts threads.
const runtimeThreads = 2
