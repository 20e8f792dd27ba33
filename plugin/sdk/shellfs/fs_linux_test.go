package shellfs_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

// each runs a test with the files of a fresh folder by every shell.
func each(t *testing.T, test func(t *testing.T, files *shellfs.FS, dir string)) {
	t.Helper()
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			files, err := shellfs.New(t.Context(), shellfs.Config{Runner: shell, WorkingDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			test(t, files, dir)
		})
	}
}

func put(t *testing.T, files *shellfs.FS, name, content string, opts workspace.WriteOptions) error {
	t.Helper()
	w, err := files.Create(t.Context(), name, opts)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Close()
}

func TestSpecialFilesNeverWait(t *testing.T) {
	each(t, func(t *testing.T, files *shellfs.FS, dir string) {
		if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir) // the path of a socket may have 107 bytes
		l, err := net.Listen("unix", "socket")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for name, kind := range map[string]fs.FileMode{"fifo": fs.ModeNamedPipe, "socket": fs.ModeSocket, "/dev/zero": fs.ModeDevice | fs.ModeCharDevice} {
			if info, err := files.Stat(t.Context(), name); err != nil || info.Mode.Type() != kind {
				t.Errorf("%s: %v, error %v", name, info.Mode, err)
			}
			if _, err := files.Open(t.Context(), name, workspace.ReadOptions{}); !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("reading %s: %v", name, err)
			}
			if err := put(t, files, name, "x", workspace.WriteOptions{}); !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("writing %s: %v", name, err)
			}
		}
	})
}

// TestAWriteKeepsWhatIsNotContent looks at names, owner and mode of a file.
func TestAWriteKeepsWhatIsNotContent(t *testing.T) {
	each(t, func(t *testing.T, files *shellfs.FS, dir string) {
		name, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
		if err := put(t, files, name, "old", workspace.WriteOptions{Mode: 0o640}); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(name, other); err != nil {
			t.Fatal(err)
		}
		if err := put(t, files, name, "new", workspace.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(other); err != nil || string(content) != "new" {
			t.Errorf("by its other name the file holds %q, error %v", content, err)
		}
		if os.Getuid() == 0 {
			if err := errors.Join(os.Remove(other), os.Chown(name, 12, 34), os.Chmod(name, fs.ModeSetuid|0o711)); err != nil {
				t.Fatal(err)
			}
			if err := put(t, files, name, "newer", workspace.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		if os.Getuid() == 0 && (owner.Uid != 12 || owner.Gid != 34 || info.Mode() != fs.ModeSetuid|0o711) {
			t.Errorf("written again it is %d:%d %v", owner.Uid, owner.Gid, info.Mode())
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 2 {
			t.Errorf("left are %v, error %v", entries, err)
		}
	})
}

// TestAFullDiskIsENOSPC writes to a device that is always full.
func TestAFullDiskIsENOSPC(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root can mount a small file system; the words of the error are in TestErrorsAreKnownByTheirWords")
		return
	}
	each(t, func(t *testing.T, files *shellfs.FS, dir string) {
		if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Logf("no mounts here: %v", err)
			return
		}
		defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
		if err := put(t, files, "file", strings.Repeat("x", 3<<20), workspace.WriteOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("3 MiB on a disk of 1 MiB: %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("left are %v, error %v", entries, err)
		}
	})
}

// TestAReaderMayBeClosedEarly reads a little of what would take minutes.
func TestAReaderMayBeClosedEarly(t *testing.T) {
	each(t, func(t *testing.T, files *shellfs.FS, dir string) {
		name := filepath.Join(dir, "sparse")
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, 1<<36); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r, err := files.Open(t.Context(), name, workspace.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
