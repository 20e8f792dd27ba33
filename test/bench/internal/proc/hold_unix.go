//go:build unix

package proc

import "syscall"

// Stop stops a process until [Continue].
func Stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

// Continue lets a stopped process go on.
func Continue(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
