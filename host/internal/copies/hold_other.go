//go:build !unix

package copies

import (
	"io/fs"
	"os"
)

// holdFolder opens a folder. Here nothing is ever removed: see isFree.
func holdFolder(dir string) (*os.File, error) { return os.Open(dir) }

// isFree is never known.
func isFree(string) (*os.File, bool) { return nil, false }

// private has nothing to go by: modes do not say who may write.
func private(string, fs.FileInfo) error { return nil }
