//go:build unix

package process

import (
	"io"
	"os"
	"syscall"
	"time"
)

// passesFiles says that a child can be given the lifeline.
const passesFiles = true

// killGroup kills every process of the group that pid leads.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// wasKilled reports whether the process ended as [Process.Kill] ends it.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// endReads makes a read that waits, and all later ones, return.
func endReads(file *os.File) {
	if err := file.SetReadDeadline(time.Unix(1, 0)); err != nil {
		_ = file.Close()
	}
}

// readNow reads what is in the pipe and does not wait for more.
func readNow(file *os.File, b []byte) (int, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, readErr = syscall.Read(int(fd), b)
			if readErr != syscall.EINTR {
				return true
			}
		}
	})
	if err != nil || readErr != nil || n <= 0 {
		return 0, io.EOF // empty, at its end, or broken: nothing more comes
	}
	return n, nil
}
