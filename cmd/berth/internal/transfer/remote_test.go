//go:build !windows

package transfer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

func newRemote(t *testing.T) workspace.Workspace {
	t.Helper()
	h := hosttest.New(t, map[string]hosttest.Registrar{"notes": state.Plugin("test")})
	ws, err := h.Workspace("notes", workspace.WithName("n"))
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// remoteEnd names a path in a workspace, where permissions can all be set.
func remoteEnd(t *testing.T, ws workspace.Workspace, path string) Endpoint {
	t.Helper()
	return Endpoint{Remote(ws, "notes/n", func(note string) { t.Errorf("unexpected note: %s", note) }), path}
}

func TestATreeGoesInAndOut(t *testing.T) {
	root := t.TempDir()
	tree := map[string]string{
		"a": "1", "sub/": "", "sub/deep/": "", "sub/deep/b": strings.Repeat("x", 1<<20), "empty/": "",
		"l": "-> sub/deep/b", "up": "-> ..", "gone": "-> /gone\xff", "new\nline": "2", "\xff\xfe": "3",
	}
	lay(t, filepath.Join(root, "src"), tree)
	if err := os.Chmod(filepath.Join(root, "src/sub"), 0o500); err != nil {
		t.Fatal(err)
	}
	ws := newRemote(t)
	for _, to := range []string{"new", "deep/er/new", "/abs/new/"} {
		if err := Copy(t.Context(), Endpoint{Local(), root + "/src"}, remoteEnd(t, ws, to), Options{}); err != nil {
			t.Fatal(err)
		}
		out := root + "/out/" + to
		if err := Copy(t.Context(), remoteEnd(t, ws, to), Endpoint{Local(), out}, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := look(t, out); !maps.Equal(got, tree) {
			t.Errorf("%s: got %q", to, got)
		}
		info, err := os.Stat(filepath.Join(out, "sub"))
		if err != nil || info.Mode().Perm() != 0o500 {
			t.Errorf("%s: sub has %v, %v", to, info.Mode(), err)
		}
		for _, dir := range []string{root + "/src/sub", out + "/sub"} {
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
		}
	}
}

func TestARemoteFileTakesTheModeOfTheSource(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"x.sh": "1"})
	if err := os.Chmod(filepath.Join(root, "x.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	ws := newRemote(t)
	if err := ws.WriteFile(t.Context(), "old.sh", []byte("old")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old.sh", "new.sh"} {
		if err := Copy(t.Context(), Endpoint{Local(), root + "/x.sh"}, remoteEnd(t, ws, name), Options{}); err != nil {
			t.Fatal(err)
		}
		info, err := ws.Stat(t.Context(), name)
		if err != nil || info.Mode != 0o751 {
			t.Errorf("%s has %v, %v", name, info.Mode, err)
		}
	}
}

func TestARemoteLinkIsReplacedBelowAndFollowedAtTheTop(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"d/f": "new", "f": "top"})
	ws := newRemote(t)
	ctx := t.Context()
	for _, err := range []error{
		ws.WriteFile(ctx, "real", []byte("old")), ws.MkdirAll(ctx, "d"), ws.Symlink(ctx, "../real", "d/f"), ws.Symlink(ctx, "real", "link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Copy(ctx, Endpoint{Local(), root + "/d"}, remoteEnd(t, ws, "."), Options{}); err != nil {
		t.Fatal(err)
	}
	if data, err := ws.ReadFile(ctx, "real"); err != nil || string(data) != "old" {
		t.Errorf("what the link below led to is %q, %v", data, err)
	}
	if info, err := ws.Lstat(ctx, "d/f"); err != nil || info.Link {
		t.Errorf("the link below is %+v, %v", info, err)
	}
	if err := Copy(ctx, Endpoint{Local(), root + "/f"}, remoteEnd(t, ws, "link"), Options{}); err != nil {
		t.Fatal(err)
	}
	if data, err := ws.ReadFile(ctx, "real"); err != nil || string(data) != "top" {
		t.Errorf("what the named link led to is %q, %v", data, err)
	}
	if info, err := ws.Lstat(ctx, "link"); err != nil || !info.Link {
		t.Errorf("the named link is %+v, %v", info, err)
	}
}

// noChmod is a workspace of a provider without that feature.
type noChmod struct{ workspace.Workspace }

func (noChmod) Chmod(_ context.Context, path string, _ fs.FileMode) error {
	return &fs.PathError{Op: "chmod", Path: path, Err: errors.ErrUnsupported}
}

func TestPermissionsThatCannotBeSetAreToldOnce(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"src/a/": "", "src/b/": "", "src/b/f": "1"})
	for _, name := range []string{"src/a", "src/b"} {
		if err := os.Chmod(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ws := newRemote(t)
	var notes []string
	to := Endpoint{Remote(noChmod{ws}, "notes/n", func(note string) { notes = append(notes, note) }), "dst"}
	if err := Copy(t.Context(), Endpoint{Local(), root + "/src"}, to, Options{}); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "notes/n cannot set permissions") {
		t.Errorf("notes: %q", notes)
	}
	if data, err := ws.ReadFile(t.Context(), "dst/b/f"); err != nil || string(data) != "1" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestRemoteErrorsNameTheWorkspace(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"f": "1"})
	ws := newRemote(t)
	err := Copy(t.Context(), remoteEnd(t, ws, "gone"), Endpoint{Local(), root + "/x"}, Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "notes/n: ") {
		t.Errorf("got %v", err)
	}
	if err := ws.WriteFile(t.Context(), "file", nil); err != nil {
		t.Fatal(err)
	}
	err = Copy(t.Context(), Endpoint{Local(), root + "/f"}, remoteEnd(t, ws, "file/f"), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "notes/n: ") {
		t.Errorf("got %v", err)
	}
}
