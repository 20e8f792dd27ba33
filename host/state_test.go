package host_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// newState returns a workspace of the state plugin, which serves in this process
// and keeps its files in memory.
func newState(t *testing.T) workspace.Workspace {
	t.Helper()
	h, err := host.New(host.Config{Providers: map[string]host.Provider{
		"notes": {InProcess: state.Plugin("test"), Config: map[string]any{"store": "memory"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	ws, err := h.Workspace("notes")
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestFS_PassesTheStandardLibrarysTest(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	for name, content := range map[string]string{"a.txt": "alpha", "dir/b.txt": "beta", "dir/sub/c": "", "name with\nnewline": "x"} {
		if err := ws.WriteFile(ctx, name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.Symlink(ctx, "a.txt", "link"); err != nil {
		t.Fatal(err)
	}
	fsys := ws.FS(ctx)
	if err := fstest.TestFS(fsys, "a.txt", "dir/b.txt", "dir/sub/c", "link"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(host.ReadOnly(ws).FS(ctx), "a.txt", "dir/b.txt"); err != nil {
		t.Error(err)
	}
	sub, err := fs.Sub(fsys, "dir")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := fs.ReadFile(sub, "b.txt"); err != nil || string(data) != "beta" {
		t.Errorf("b.txt of dir: %q, %v", data, err)
	}
	if matches, err := fs.Glob(fsys, "*.txt"); err != nil || len(matches) != 1 {
		t.Errorf("*.txt: %q, %v", matches, err)
	}
}

func TestFS_ServesHTTPWithRanges(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "a.txt", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	handler := http.FileServerFS(ws.FS(ctx))
	for header, want := range map[string]string{"": "0123456789", "bytes=3-5": "345", "bytes=-2": "89"} {
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/a.txt", nil)
		if header != "" {
			req.Header.Set("Range", header)
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		if got := rec.Body.String(); got != want {
			t.Errorf("%s: %d %q", header, rec.Code, got)
		}
	}
}

func TestFS_AFileThatChangedCannotBeSoughtIn(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	f, err := ws.FS(ctx).Open("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := ws.WriteFile(ctx, "f", []byte("newer")); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "old" {
		t.Errorf("as it was opened: %q, %v", data, err)
	}
	if _, err := f.(io.Seeker).Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(f); err == nil {
		t.Errorf("two files were read as one: %q", data)
	}
}

func TestFS_AWalkOverLinksToItsOwnFolderEnds(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "loop/file", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"loop/one", "loop/two"} {
		if err := ws.Symlink(ctx, ".", name); err != nil {
			t.Fatal(err)
		}
	}
	var walked []string
	err := fs.WalkDir(ws.FS(ctx), ".", func(path string, d fs.DirEntry, err error) error {
		walked = append(walked, path)
		if len(walked) > 100 {
			return errors.New("the walk does not end")
		}
		return err
	})
	if err != nil || len(walked) != 5 {
		t.Errorf("walked %q: %v", walked, err)
	}
}

func TestRun_MakesNoWorkspaceThatCannotRunIt(t *testing.T) {
	ws := newState(t)
	if _, err := ws.Run(t.Context(), workspace.Command{Args: []string{"true"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a command where there are only files: %v", err)
	}
	if ref, made := ws.Ref(); made {
		t.Errorf("%s was made for it", ref)
	}
	if err := ws.WriteFile(t.Context(), "f", nil); err != nil {
		t.Errorf("the handle afterwards: %v", err)
	}
	if _, err := ws.Run(t.Context(), workspace.Command{Args: []string{"true"}}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a command in a workspace of files: %v", err)
	}
}
