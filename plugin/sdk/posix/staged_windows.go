package posix

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

func openStaged(dir string) (*os.File, string, error) { return openNamed(dir) }

// link is for files without a name, which Windows has not.
func (s *staged) link(string) error { return syscall.EWINDOWS }

// renameNew gives the new name unless it is taken. The old one stays.
func renameNew(from, to string) error { return os.Link(from, to) }

func replaceable(string, fs.FileInfo, *os.File) bool { return true }

func chownLike(*os.File, fs.FileInfo) error { return nil }

func mustCopy(error) bool { return false }

func chtimesFile(file *os.File, modTime time.Time) error {
	return os.Chtimes(file.Name(), modTime, modTime)
}
