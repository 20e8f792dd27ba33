//go:build !unix

package process

import (
	"fmt"
	"os"
	"path/filepath"
)

// On this system plugins listen on a port of the loopback interface; the folder
// is only go-plugin's own.

func checkOwner(string) error { return nil }

func lockedFolder(base string) (*folder, error) {
	dir, err := os.MkdirTemp(base, folderPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &folder{path: dir, lock: lock}, nil
}

// removeAbandoned leaves everything: there is no lock that tells a dead host.
func removeAbandoned(string) {}
