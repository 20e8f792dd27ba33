//go:build linux || darwin

package state

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskSpace is how many bytes this user can still write to a file's disk.
func diskSpace(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:gosec,unconvert // the types differ between systems
}
