package posix

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// realPath resolves as far as the path exists, and keeps the names after that.
func realPath(abs string) (string, error) {
	resolved, err := filepath.EvalSymlinks(abs)
	if parent := filepath.Dir(abs); errors.Is(err, fs.ErrNotExist) && parent != abs {
		if parent, err = realPath(parent); err != nil {
			return "", err
		}
		return filepath.Join(parent, filepath.Base(abs)), nil
	}
	return resolved, err
}
