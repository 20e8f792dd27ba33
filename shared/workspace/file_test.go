package workspace_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestValidatePath(t *testing.T) {
	for _, path := range []string{".", "..", "/", "a", "-rf", " ", "a\nb", "a\xff", "//", "a/../b", "a'\"$(id)"} {
		if err := workspace.ValidatePath("open", path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"", "\x00", "a\x00b", "/a/\x00"} {
		err := workspace.ValidatePath("open", path)
		checkInvalid(t, path, errors.Unwrap(err), "the path")
		var pathErr *fs.PathError
		if !errors.As(err, &pathErr) || pathErr.Op != "open" || pathErr.Path != path {
			t.Errorf("%q: %#v", path, err)
		}
	}
}

func TestFileInfoIsDir(t *testing.T) {
	for mode, want := range map[fs.FileMode]bool{
		0o755: false, fs.ModeDir | 0o755: true, fs.ModeSymlink: false, fs.ModeNamedPipe: false, fs.ModeIrregular: false,
	} {
		if got := (workspace.FileInfo{Mode: mode}).IsDir(); got != want {
			t.Errorf("IsDir of %v is %v", mode, got)
		}
	}
	// A followed link to a directory is one, though the entry itself is a link.
	if !(workspace.FileInfo{Mode: fs.ModeDir, Link: true, Target: "d"}).IsDir() {
		t.Error("a link to a directory is none")
	}
}
