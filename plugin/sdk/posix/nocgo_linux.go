//go:build !cgo

package posix

// runtimeThreads are those of the Go runtime that run no Go code: its monitor.
const runtimeThreads = 1
