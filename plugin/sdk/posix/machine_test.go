//go:build unix

package posix_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

func openMachine(t testing.TB, dir, incarnation string) *posix.Workspace {
	t.Helper()
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "machine", Env: testEnv, WholeMachine: true, Incarnation: incarnation})
	must(t, err)
	t.Cleanup(func() { must(t, ws.Close()) })
	return ws
}

// TestWholeMachineOutlivesItsFolder changes the folder in every way in which a
// workspace that is the folder would be gone.
func TestWholeMachineOutlivesItsFolder(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"moved":    func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"a file":   func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ws")
			must(t, os.Mkdir(dir, 0o755))
			ws := openMachine(t, dir, "boot-1")
			must(t, put(t, ws, "f", "x", workspace.WriteOptions{}))
			must(t, change(ws.WorkingDir()))

			want := fs.ErrNotExist
			if name == "a file" {
				want = syscall.ENOTDIR
			}
			for what, f := range map[string]func() error{
				"Stat":    func() error { _, err := ws.Stat(t.Context(), "f"); return err },
				"ReadDir": func() error { _, err := ws.ReadDir(t.Context(), "f"); return err },
				"Open":    func() error { _, err := ws.Open(t.Context(), "f", workspace.ReadOptions{}); return err },
				"Remove":  func() error { return ws.Remove(t.Context(), "f") },
			} {
				wantError(t, what, f(), want, "f")
			}
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan error, 1)
			go func() { watched <- ws.Watch(ctx) }()
			must(t, put(t, ws, filepath.Dir(dir)+"/other", "y", workspace.WriteOptions{}))
			if name != "a file" {
				must(t, put(t, ws, "deep/f", "again", workspace.WriteOptions{}))
				if got, err := get(t, ws, "deep/f", workspace.ReadOptions{}); err != nil || got != "again" {
					t.Errorf("in the folder made again: %q, %v", got, err)
				}
			}
			cancel()
			if err := <-watched; !errors.Is(err, context.Canceled) || errors.Is(err, workspace.ErrUnavailable) {
				t.Errorf("Watch: %v, want the context's error", err)
			}
			if ws.Incarnation() != "boot-1" {
				t.Errorf("incarnation %q", ws.Incarnation())
			}
		})
	}
}

// TestWholeMachineWithoutItsFolder opens one whose folder a command has removed,
// as a guest does that starts again.
func TestWholeMachineWithoutItsFolder(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Symlink("real", parent+"/link"))
	ws := openMachine(t, parent+"/link/work", "")
	if want := parent + "/real/work"; ws.WorkingDir() != want {
		t.Errorf("working directory %q, want %q", ws.WorkingDir(), want)
	}
	if ws.Incarnation() != "" {
		t.Errorf("incarnation %q, want what was given", ws.Incarnation())
	}
	must(t, ws.MkdirAll(t.Context(), "."))
	for _, path := range []string{".", ws.WorkingDir(), parent} {
		if err := ws.Remove(t.Context(), path); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("Remove(%s): %v, want ErrInvalid", path, err)
		}
	}
}
