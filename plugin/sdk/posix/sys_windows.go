package posix

import (
	"io/fs"
	"os"
	"syscall"
)

const openFlags = 0

// openDir opens a directory, and nothing else.
func openDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func isNotDir(error) bool { return false } // Windows says that the path is not found

// hasShell reports whether scripts can run.
func hasShell() bool { return false }
