package posix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without the groups that commands belong in, none is started: they would be bounded
// as the plugin is. The keeper that was to start them is gone.
func TestNoKeeperWithoutItsGroups(t *testing.T) {
	there := t.TempDir()
	members := filepath.Join(there, "cgroup.procs")
	if err := os.WriteFile(members, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := startKeeper([]string{there, filepath.Join(there, "none")})
	if !errors.As(err, new(*groupError)) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "outside of the plugin's own limits") {
		t.Fatal(err)
	}
	pid, readErr := os.ReadFile(members)
	if readErr != nil || len(pid) == 0 {
		t.Fatalf("%q, %v", pid, readErr)
	}
	if _, err := os.Stat(filepath.Join("/proc", string(pid))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the keeper %s is there: %v", pid, err)
	}
	k, err := startKeeper([]string{there})
	if err != nil {
		t.Fatal(err)
	}
	k.leave()
}
