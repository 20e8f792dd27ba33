//go:build unix

package benchtest

import "syscall"

func signalStop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
func release(pid int) error    { return syscall.Kill(pid, syscall.SIGCONT) }
