//go:build unix

package posix

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFlags open without waiting: a FIFO would wait for its other end.
const openFlags = syscall.O_NONBLOCK | syscall.O_CLOEXEC

// openDir opens a directory, and nothing else, at once.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|openFlags, 0)
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// hasShell reports whether scripts can run.
func hasShell() bool { return unix.Access("/bin/sh", unix.X_OK) == nil }
