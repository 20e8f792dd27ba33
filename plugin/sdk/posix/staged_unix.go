//go:build unix

package posix

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// replaceableStat looks at links and owner. Another's file is replaced only by
// one that can be given the same owner.
func replaceableStat(old fs.FileInfo, staged *os.File) bool {
	st, ok := old.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 1 && chownLike(staged, old) == nil
}

// chownLike gives a file the owner of another.
func chownLike(file *os.File, like fs.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	want, ok := like.Sys().(*syscall.Stat_t)
	own, ok2 := info.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || own.Uid == want.Uid && own.Gid == want.Gid {
		return nil
	}
	return file.Chown(int(want.Uid), int(want.Gid))
}

// mustCopy reports whether a file cannot be replaced, though it may be written:
// its folder is not ours to change, or the file is a mount point.
func mustCopy(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EROFS)
}
