package posix

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openStaged makes a file without a name, which leaves nothing if this process
// is killed; on a file system that has none, or without the /proc by which it gets
// its name, one with a hidden name.
func openStaged(dir string) (*os.File, string, error) {
	if unix.Access("/proc/self/fd", unix.X_OK) != nil {
		return openNamed(dir)
	}
	file, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	switch {
	case err == nil:
		return file, "", nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL):
		return openNamed(dir)
	}
	return nil, "", err
}

// link gives the unnamed file a name.
func (s *staged) link(name string) error {
	self := selfPath(s.file)
	err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: self, New: name, Err: err}
	}
	return nil
}

// renameNew renames unless there is something under the new name, also where
// there are no hard links.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return os.Link(from, to)
	}
	return err
}

// replaceable reports whether a new file in the old one's place would differ
// from it in its content alone.
func replaceable(target string, old fs.FileInfo, staged *os.File) bool {
	size, err := unix.Llistxattr(target, nil)
	if err != nil || size == 0 {
		return replaceableStat(old, staged)
	}
	names := make([]byte, size)
	size, err = unix.Llistxattr(target, names)
	// The kernel labels each file by itself where SELinux is on.
	return err == nil && string(names[:size]) == "security.selinux\x00" && replaceableStat(old, staged)
}

// selfPath is a path to an open file, whether or not it has a name.
func selfPath(file *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(file.Fd())) }

func chtimesFile(file *os.File, modTime time.Time) error {
	ts, err := unix.TimeToTimespec(modTime)
	if err != nil {
		return err
	}
	times := [2]unix.Timespec{ts, ts}
	// Without a path it is the file itself, which package unix has no call for.
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, file.Fd(), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("utimensat", errno)
	}
	return nil
}
