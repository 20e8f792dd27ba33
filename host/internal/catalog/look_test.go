package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Look tells of each folder once, and of the first that Find takes.
func TestLookTellsWhatFindTakes(t *testing.T) {
	dir := t.TempDir()
	empty, full := filepath.Join(dir, "empty"), filepath.Join(dir, "full")
	path := filepath.Join(full, BinaryName("x"))
	if err := errors.Join(os.Mkdir(empty, 0o755), os.Mkdir(full, 0o755), os.WriteFile(path, []byte("x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	dirs := []string{empty, "", full, empty, filepath.Join(dir, "gone")}
	places := Look("x", dirs)
	if len(places) != 3 || !errors.Is(places[0].Err, fs.ErrNotExist) || !errors.Is(places[2].Err, fs.ErrNotExist) || places[1] != (Place{Dir: full, Path: path}) {
		t.Errorf("%+v", places)
	}
	if bin, err := Find("x", dirs); err != nil || bin.Path != places[1].Path {
		t.Errorf("Find takes %s, %v", bin.Path, err)
	}
}
