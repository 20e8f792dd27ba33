//go:build unix

package process

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// checkOwner refuses a folder in which another user could replace ours.
func checkOwner(base string) error {
	info, err := os.Stat(base)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return fmt.Errorf("%s is not a folder", base)
	}
	sticky := info.Mode()&fs.ModeSticky != 0
	owner := int(stat.Uid)
	switch {
	case owner != os.Geteuid() && owner != 0:
		return fmt.Errorf("%s belongs to another user (uid %d)", base, owner)
	case info.Mode().Perm()&0o022 != 0 && !sticky:
		return fmt.Errorf("%s can be changed by others and is not sticky (mode %v)", base, info.Mode())
	}
	return nil
}

// folderTries is how often a new folder is made when a sweep takes it away in
// the moment between its making and its lock.
const folderTries = 10

// lockedFolder makes a folder and locks the file in it. The lock tells that its
// host lives better than a pid would: the kernel lets go of it with the process,
// and it holds across pid namespaces that share a /tmp.
func lockedFolder(base string) (*folder, error) {
	for range folderTries {
		dir, err := os.MkdirTemp(base, fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
		if err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			_ = os.RemoveAll(dir)
			if os.IsNotExist(err) {
				continue
			}
			return nil, err
		}
		if flock(lock) && sameAs(lock) {
			return &folder{path: dir, lock: lock}, nil
		}
		_ = lock.Close()
		_ = os.RemoveAll(dir)
	}
	return nil, fmt.Errorf("%s: new folders are swept away by other hosts again and again", base)
}

func flock(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// sameAs reports whether the file still stands at its path.
func sameAs(file *os.File) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(file.Name())
	return err == nil && os.SameFile(opened, there)
}

// unlockedAge is how old a folder without a lock file must be to be swept: a
// younger one is just being made.
const unlockedAge = time.Minute

// removeAbandoned removes a socket folder of this user whose host is gone.
func removeAbandoned(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		if os.IsNotExist(err) && time.Since(info.ModTime()) > unlockedAge {
			_ = os.RemoveAll(dir)
		}
		return
	}
	defer lock.Close()
	if flock(lock) {
		_ = os.RemoveAll(dir)
	}
}
