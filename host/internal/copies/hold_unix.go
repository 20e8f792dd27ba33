//go:build unix

package copies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/host/internal/catalog"
)

// holdFolder opens a folder and keeps others from removing it while it is open.
func holdFolder(dir string) (*os.File, error) {
	folder, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	// An error is of a file system that knows no such locks. Then nobody removes
	// anything there: see isFree.
	_ = flock(folder, unix.LOCK_SH)
	// Whoever held it alone until now has removed it.
	info, err := folder.Stat()
	if err == nil && !isAt(dir, info) {
		err = &fs.PathError{Op: "hold", Path: dir, Err: fs.ErrNotExist}
	}
	if err != nil {
		_ = folder.Close()
		return nil, err
	}
	return folder, nil
}

// isFree says whether nobody holds a folder, and keeps it so until the file is
// closed.
func isFree(dir string) (*os.File, bool) {
	folder, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, false
	}
	if flock(folder, unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = folder.Close()
		return nil, false
	}
	return folder, true
}

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// private refuses what anybody but this user could have written.
func private(path string, info fs.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t).Uid
	var reason string
	switch {
	case owner != uint32(os.Geteuid()):
		reason = fmt.Sprintf("belongs to uid %d and not to this user (uid %d)", owner, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		reason = "may be written by others"
	default:
		return nil
	}
	return &catalog.UntrustedError{Target: path, Path: path, Mode: info.Mode(), Reason: reason, Advice: "remove it"}
}
