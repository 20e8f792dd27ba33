//go:build unix

package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// hold waits until nobody else changes files in dir, and keeps others waiting. The
// folder is held, since the file itself is replaced.
func hold(dir string) (release func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		// A file system that cannot: two at once may lose one's change, but no more.
	case err != nil:
		_ = folder.Close()
		return nil, err
	}
	return func() { _ = folder.Close() }, nil
}
