//go:build !unix

package catalog

import "os"

// Open opens a file to be read.
func Open(path string) (*os.File, error) { return os.Open(path) }
