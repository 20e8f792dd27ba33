package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The name of a plugin's socket is BASE/berth-run-PID-RANDOM/plugin-dirRANDOM/pluginRANDOM:
// go-plugin adds the last two, with up to 10 digits each.
const (
	folderPrefix = "berth-run-"
	// maxSocketPath is the longest path of a unix socket on Linux, without its
	// final NUL; macOS has 103.
	maxSocketPath = 103
	// socketTail is the longest that follows a base.
	socketTail = len("/"+folderPrefix+"4194304-4294967295") + len("/plugin-dir4294967295") + len("/plugin4294967295")
	// lockName is the file in a folder that its host holds locked while it lives.
	lockName = "lock"
)

// folder is the private folder in which one plugin makes its socket. It goes
// when the plugin does; what a killed host left is swept by the next one.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder, mode 0700, below the first base that is short
// enough for a socket, ours or sticky, and writable.
func newFolder() (*folder, error) {
	var refused []error
	for _, base := range bases() {
		if err := checkBase(base); err != nil {
			refused = append(refused, err)
			continue
		}
		f, err := lockedFolder(base)
		if err == nil {
			return f, nil
		}
		refused = append(refused, err)
	}
	return nil, fmt.Errorf("no folder for the plugin's socket: %w (set XDG_RUNTIME_DIR or TMPDIR to a folder of at most %d characters)",
		errors.Join(refused...), maxSocketPath-socketTail)
}

// bases are the folders in which a socket folder may be made, best first.
func bases() []string {
	var list []string
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if base = filepath.Clean(base); filepath.IsAbs(base) && !slices.Contains(list, base) {
			list = append(list, base)
		}
	}
	return list
}

func checkBase(base string) error {
	if len(base)+socketTail > maxSocketPath {
		return fmt.Errorf("%s is too long for a unix socket below it (%d characters)", base, len(base))
	}
	return checkOwner(base)
}

// sweep removes the socket folders that killed hosts of this user left.
func sweep() {
	for _, base := range bases() {
		dir, err := os.Open(base)
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(-1) // unsorted: a /tmp can be large
		_ = dir.Close()
		for _, name := range names {
			if strings.HasPrefix(name, folderPrefix) {
				removeAbandoned(filepath.Join(base, name))
			}
		}
	}
}

// remove deletes the folder and lets go of its lock. It is safe to call twice.
func (f *folder) remove() {
	_ = os.RemoveAll(f.path)
	_ = f.lock.Close() // after the removal, so that no sweep meets it half done
}

// holds reports whether path is in the folder or in one directly below it, where
// go-plugin has sockets made, whatever links lead there.
func (f *folder) holds(path string) bool {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil || !filepath.IsAbs(path) {
		return false
	}
	here, err := filepath.EvalSymlinks(f.path)
	return err == nil && (dir == here || filepath.Dir(dir) == here)
}
