//go:build unix

package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supported says that there are admin sockets.
func supported() error { return nil }

// folderTries is how often a folder is made that another serve, which ends just now,
// takes away.
const folderTries = 10

// makeFolder makes a socket's folder, or checks the one that is there: nobody but
// its owner, who is this user, may enter it.
func makeFolder(dir string) (err error) {
	for range folderTries {
		if err = tryFolder(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

func tryFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), folderMode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("the folder %s belongs to another user (uid %d): name a path in a folder of its own", dir, stat.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("the folder %s is open to others (mode %04o): name a path in a folder of its own, or chmod 700 it", dir, info.Mode().Perm())
	}
	return nil
}

// lock is held by the serve that has a socket. The kernel lets go of it with the
// process, however that ends.
type lock struct{ file *os.File }

// maxLockFile is far more than a pid.
const maxLockFile = 64

// takeLock locks a socket's place, and writes down who has it.
func takeLock(ctx context.Context, path string) (*lock, error) {
	fail := func(err error) (*lock, error) {
		return nil, fmt.Errorf("admin socket %s: locking its place: %w", path, err)
	}
	for deadline := time.Now().Add(lockPatience); ; {
		file, err := os.OpenFile(lockFile(path), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, socketMode)
		if errors.Is(err, fs.ErrNotExist) { // another serve has taken its folder away
			if err := makeFolder(filepath.Dir(path)); err != nil {
				return fail(err)
			}
		} else if err != nil {
			return fail(err)
		} else {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil && stands(file) {
				if err := writePID(file); err != nil {
					file.Close()
					return fail(err)
				}
				return &lock{file}, nil
			}
			pid := readPID(file)
			file.Close()
			if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
				return fail(err)
			}
			if time.Now().After(deadline) {
				return nil, &HeldError{Path: path, PID: pid}
			}
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
}

// release lets go of the place. The file goes first: whoever locks it then sees
// that it does not stand there any more.
func (l *lock) release() {
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}

// stands reports whether the file is the one at its path.
func stands(file *os.File) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(file.Name())
	return err == nil && os.SameFile(opened, there)
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID returns zero if it is not known.
func readPID(file *os.File) int {
	data, err := io.ReadAll(io.NewSectionReader(file, 0, maxLockFile))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return max(pid, 0)
}

// holder tells whether a serve has a socket's place, and which.
func holder(path string) (pid int, held bool) {
	file, err := os.OpenFile(lockFile(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0, false
	}
	return readPID(file), true
}
