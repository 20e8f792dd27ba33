//go:build unix

package catalog

import (
	"fmt"
	"os"
	"syscall"
)

// Open opens a regular file to be read. Nothing else that was put in its place
// makes it wait.
func Open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
