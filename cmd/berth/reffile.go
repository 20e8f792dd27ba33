package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/shared/workspace"
)

// refFile is where a ref is to be written. It is made before the workspace is,
// so that a place that cannot be written makes none.
type refFile struct {
	path string
	file *os.File
	// replace says that file is to take the place of path when it is complete;
	// else it is a pipe or device that is written directly.
	replace bool
}

func (a *app) createRefFile(path string) (*refFile, error) {
	r := &refFile{path: path, replace: true}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("--ref-file %s: it is a folder", path)
	case err == nil && !info.Mode().IsRegular():
		r.replace = false
		r.file, err = a.openPipe(path)
	default:
		r.file, err = os.CreateTemp(filepath.Dir(path), ".berth-ref-*")
	}
	if err != nil {
		return nil, fmt.Errorf("--ref-file %s: %w", path, cause(err))
	}
	return r, nil
}

// write writes the ref, complete or not at all.
func (r *refFile) write(ref workspace.Ref) error {
	_, err := io.WriteString(r.file, ref.String()+"\n")
	if closeErr := r.file.Close(); err == nil {
		err = closeErr
	}
	if err == nil && r.replace {
		err = os.Rename(r.file.Name(), r.path)
	}
	if err != nil {
		r.discard()
		return fmt.Errorf("writing the ref %s to %s: %w", ref, r.path, cause(err))
	}
	return nil
}

// discard leaves nothing of a ref that was not written.
func (r *refFile) discard() {
	_ = r.file.Close() // a second close tells nothing new
	if r.replace {
		_ = os.Remove(r.file.Name())
	}
}

// cause is an error without the name of the file beside the user's.
func cause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}
