//go:build unix

package posix_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestL8_RemovedOrReplacedFolder(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"moved":    func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"a file":   func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ws")
			must(t, os.Mkdir(dir, 0o755))
			ws := openDir(t, dir)
			must(t, put(t, ws, "f", "x", workspace.WriteOptions{}))
			w, err := ws.Create(t.Context(), "late", workspace.WriteOptions{})
			must(t, err)
			watched := make(chan error, 1)
			go func() { watched <- ws.Watch(t.Context()) }()
			must(t, change(ws.WorkingDir()))
			for what, f := range map[string]func() error{
				"Stat":    func() error { _, err := ws.Stat(t.Context(), "f"); return err },
				"ReadDir": func() error { _, err := ws.ReadDir(t.Context(), "."); return err },
				"Open":    func() error { _, err := ws.Open(t.Context(), "f", workspace.ReadOptions{}); return err },
				"Create":  func() error { _, err := ws.Create(t.Context(), "g", workspace.WriteOptions{}); return err },
				"Close":   w.Close,
				"Mkdir":   func() error { return ws.MkdirAll(t.Context(), "d") },
				"Remove":  func() error { return ws.Remove(t.Context(), "/etc/hostname-that-is-not-there") },
				"Watch":   func() error { return <-watched },
			} {
				if err := f(); !errors.Is(err, workspace.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", what, err)
				}
			}
			if _, err := os.Stat(dir + "/late"); err == nil {
				t.Error("a write went into the other folder")
			}
		})
	}
}

func TestL8_Incarnation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	must(t, os.Mkdir(dir, 0o755))
	first := openDir(t, dir)
	again := openDir(t, dir)
	if first.Incarnation() == "" || first.Incarnation() != again.Incarnation() {
		t.Errorf("%q and %q of one folder", first.Incarnation(), again.Incarnation())
	}
	must(t, os.RemoveAll(dir), os.Mkdir(dir, 0o755))
	if other := openDir(t, dir); other.Incarnation() == first.Incarnation() {
		t.Errorf("the folder put in its place has %q too", other.Incarnation())
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o644), os.Mkdir(dir+"/real", 0o755), os.Symlink("real", dir+"/link"))
	for path, want := range map[string]error{"gone": fs.ErrNotExist, "file": syscall.ENOTDIR} {
		if _, err := posix.Open(posix.Config{Dir: filepath.Join(dir, path)}); !errors.Is(err, want) {
			t.Errorf("Open(%s): %v, want %v", path, err, want)
		}
	}
	if _, err := posix.Open(posix.Config{Dir: dir, Env: map[string]string{"A=B": ""}}); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("an invalid environment: %v", err)
	}
	real, err := filepath.EvalSymlinks(dir + "/real")
	must(t, err)
	if ws := openDir(t, dir+"/link"); ws.WorkingDir() != real {
		t.Errorf("working directory %q, want %q", ws.WorkingDir(), real)
	}
}

func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/tree/locked/deep", 0o755), os.WriteFile(dir+"/tree/locked/deep/f", nil, 0o444), os.WriteFile(dir+"/outside", nil, 0o600),
		os.Symlink("../outside", dir+"/tree/link"), os.Symlink("..", dir+"/tree/up"), os.Chmod(dir+"/tree/locked/deep", 0), os.Chmod(dir+"/tree/locked", 0o555))
	must(t, posix.RemoveTree(dir+"/tree"), posix.RemoveTree(dir+"/tree"))
	if info, err := os.Stat(dir + "/outside"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("outside: %v, %v", info, err)
	}
	if _, err := os.Lstat(dir + "/tree"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
