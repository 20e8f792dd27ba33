package posix_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
)

// TestC2_WholeMachineStartsWhereItCan is of a working directory that commands take
// away from under themselves.
func TestC2_WholeMachineStartsWhereItCan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	must(t, os.Mkdir(dir, 0o755))
	ws := openMachine(t, dir, "")
	if r := run(t, ws, script("rmdir ../ws; echo $?")); r.stdout != "0\n" {
		t.Fatalf("removing the working directory: %+v", r)
	}
	_, err := ws.Start(t.Context(), sdk.Command{Args: []string{"pwd"}})
	var pathErr *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &pathErr) || pathErr.Path != ws.WorkingDir() {
		t.Errorf("a command: %v, want a PathError of %s with ErrNotExist", err, ws.WorkingDir())
	}
	if r := run(t, ws, sdk.Command{Args: []string{"pwd"}, Dir: "/"}); r.stdout != "/\n" {
		t.Errorf("elsewhere: %+v", r)
	}
	must(t, os.Mkdir(dir, 0o755))
	if r := run(t, ws, sdk.Command{Args: []string{"pwd"}}); r.stdout != ws.WorkingDir()+"\n" {
		t.Errorf("in the folder made again: %+v", r)
	}
}
