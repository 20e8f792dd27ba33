package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// moveStore moves a store's file and what belongs to it.
func moveStore(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(from+suffix, to+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestAFileThatIsGoneTakesNoWrites: what is written to a deleted file is lost
// when its last user closes it, so nobody may be told that it was written.
func TestAFileThatIsGoneTakesNoWrites(t *testing.T) {
	config := inFile(t)
	path := strings.TrimPrefix(config.Store, storeFilePrefix)
	d := create(t, newProvider(t, config, "notes"), "a")
	mustWrite(t, d, "f", "before")
	wantFile(t, d, "f", "before")
	away := filepath.Join(t.TempDir(), "away.db")
	moveStore(t, path, away)

	if err := write(t.Context(), d, "g", []byte("lost"), workspace.WriteOptions{}); !errors.Is(err, workspace.ErrUnavailable) || !strings.Contains(err.Error(), path) {
		t.Errorf("a write: %v", err)
	}
	if _, err := read(t.Context(), d, "f", workspace.ReadOptions{}); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a read: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made in its place: %v", err)
	}
	moveStore(t, away, path)
	wantFile(t, d, "f", "before")
	mustWrite(t, d, "g", "after")
	wantFile(t, d, "g", "after")
}

// TestAFileThatWasReplacedGetsTheWrites: an operator restores a backup while the
// plugin runs.
func TestAFileThatWasReplacedGetsTheWrites(t *testing.T) {
	config := inFile(t)
	path := strings.TrimPrefix(config.Store, storeFilePrefix)
	p := newProvider(t, config, "notes")
	d := create(t, p, "a")
	mustWrite(t, d, "f", "before")
	backup := filepath.Join(t.TempDir(), "backup.db")
	if _, err := p.store.(*sqliteStore).db.ExecContext(t.Context(), "VACUUM INTO ?", backup); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, d, "f", "not in the backup")
	wantFile(t, d, "f", "not in the backup")
	moveStore(t, path, filepath.Join(t.TempDir(), "old.db"))
	moveStore(t, backup, path)

	wantFile(t, d, "f", "before")
	mustWrite(t, d, "g", "after")
	wantFile(t, create(t, newProvider(t, config, "notes"), "a"), "g", "after")
}
