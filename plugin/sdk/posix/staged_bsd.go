//go:build unix && !linux

package posix

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

func openStaged(dir string) (*os.File, string, error) { return openNamed(dir) }

// link is for files without a name, which this system has not.
func (s *staged) link(string) error { return syscall.ENOSYS }

// renameNew gives the new name unless it is taken. The old one stays.
func renameNew(from, to string) error { return os.Link(from, to) }

func replaceable(_ string, old fs.FileInfo, staged *os.File) bool {
	return replaceableStat(old, staged)
}

func chtimesFile(file *os.File, modTime time.Time) error {
	times := []syscall.Timeval{syscall.NsecToTimeval(modTime.UnixNano()), syscall.NsecToTimeval(modTime.UnixNano())}
	return syscall.Futimes(int(file.Fd()), times)
}
