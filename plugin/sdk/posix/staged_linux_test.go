package posix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestStagedUnderAName is of file systems that have no unnamed files.
func TestStagedUnderAName(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		target    string
		exclusive bool
		want      error
	}{{"new", false, nil}, {"new", false, nil}, {"new", true, fs.ErrExist}, {"other", true, nil}} {
		file, name, err := openNamed(dir)
		if err != nil {
			t.Fatal(err)
		}
		s := &staged{file: file, name: name}
		if _, err := file.WriteString("content"); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, test.target)
		if err := errors.Join(s.prepare(0o640, nil, time.Unix(1, 0)), s.publish(target, test.exclusive)); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
		s.discard()
		info, err := os.Stat(target)
		if err != nil || info.Mode() != 0o640 || info.Size() != 7 || info.ModTime().Unix() != 1 {
			t.Errorf("%+v: %v, %v", test, info, err)
		}
	}
	if entries, err := os.ReadDir(dir); len(entries) != 2 || err != nil {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestF2_AttributesStay writes in place what another file could not stand for.
func TestF2_AttributesStay(t *testing.T) {
	ws, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	path := ws.WorkingDir() + "/f"
	if err := os.WriteFile(path, []byte("old, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	const name = "user.berth.test"
	if err := unix.Setxattr(path, name, []byte("kept"), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	} else if err != nil {
		t.Logf("%s has no extended attributes: only the content is checked", ws.WorkingDir())
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	attributes, _ := unix.Llistxattr(path, nil)
	w, err := ws.Create(t.Context(), "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if replaced := !os.SameFile(before, after); replaced != (attributes == 0) {
		t.Errorf("replaced: %v, with %d bytes of attributes", replaced, attributes)
	}
}
