//go:build !windows

package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// lay makes a tree: names that end in / are folders, -> makes a link, and any
// other value is a file's content. A mode may stand before a | in the key.
func lay(t *testing.T, root string, tree map[string]string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		name, value := filepath.Join(root, key), tree[key]
		target, isLink := strings.CutPrefix(value, "-> ")
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(key, "/"):
			err = os.MkdirAll(name, 0o755)
		case isLink:
			err = os.Symlink(target, name)
		default:
			err = os.WriteFile(name, []byte(value), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// look reads a tree back as lay takes it, without following a link.
func look(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		key, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			tree[key+"/"] = ""
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			tree[key] = "-> " + target
			return err
		default:
			data, err := os.ReadFile(path)
			tree[key] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestWhereACopyGoes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		tree     map[string]string // below /src and /dst of a folder
		from, to string
		want     map[string]string // what is in dst after
		err      string
	}{
		{"file as a new one", map[string]string{"src/a": "1", "dst/": ""}, "src/a", "dst/b", map[string]string{"b": "1"}, ""},
		{"file with new parents", map[string]string{"src/a": "1", "dst/": ""}, "src/a", "dst/x/y/b", map[string]string{"x/": "", "x/y/": "", "x/y/b": "1"}, ""},
		{"file into a folder", map[string]string{"src/a": "1", "dst/": ""}, "src/a", "dst", map[string]string{"a": "1"}, ""},
		{"file into a new folder", map[string]string{"src/a": "1", "dst/": ""}, "src/a", "dst/new/", map[string]string{"new/": "", "new/a": "1"}, ""},
		{"file over a file", map[string]string{"src/a": "1", "dst/b": "old"}, "src/a", "dst/b", map[string]string{"b": "1"}, ""},
		{"file through a named link", map[string]string{"src/a": "1", "dst/real": "old", "dst/b": "-> real"}, "src/a", "dst/b", map[string]string{"real": "1", "b": "-> real"}, ""},
		{"file to a link to nowhere", map[string]string{"src/a": "1", "dst/b": "-> gone"}, "src/a", "dst/b", map[string]string{"b": "-> gone"}, "leads nowhere"},
		{"file over a file named as a folder", map[string]string{"src/a": "1", "dst/b": "old"}, "src/a", "dst/b/", map[string]string{"b": "old"}, "not a directory"},
		{"file over a folder of its name", map[string]string{"src/a": "1", "dst/a/": ""}, "src/a", "dst", map[string]string{"a/": ""}, "is a folder there"},
		{"folder as a new one", map[string]string{"src/d/a": "1", "dst/": ""}, "src/d", "dst/e", map[string]string{"e/": "", "e/a": "1"}, ""},
		{"folder into a folder", map[string]string{"src/d/a": "1", "dst/": ""}, "src/d", "dst", map[string]string{"d/": "", "d/a": "1"}, ""},
		{"folder through a link to one", map[string]string{"src/d/a": "1", "dst/real/": "", "dst/l": "-> real"}, "src/d", "dst/l", map[string]string{"real/": "", "l": "-> real", "real/d/": "", "real/d/a": "1"}, ""},
		{"contents into a folder", map[string]string{"src/d/a": "1", "dst/": ""}, "src/d/.", "dst", map[string]string{"a": "1"}, ""},
		{"contents as a new folder", map[string]string{"src/d/a": "1", "dst/": ""}, "src/d/.", "dst/e", map[string]string{"e/": "", "e/a": "1"}, ""},
		{"folder over a file", map[string]string{"src/d/a": "1", "dst/b": "old"}, "src/d", "dst/b", map[string]string{"b": "old"}, "is a file"},
		{"merge", map[string]string{"src/d/a": "1", "src/d/s/b": "2", "dst/d/a": "old", "dst/d/keep": "3", "dst/d/s/": ""}, "src/d", "dst",
			map[string]string{"d/": "", "d/a": "1", "d/keep": "3", "d/s/": "", "d/s/b": "2"}, ""},
		{"merge over a file", map[string]string{"src/d/s/b": "2", "dst/d/s": "old"}, "src/d", "dst", map[string]string{"d/": "", "d/s": "old"}, "is a file there"},
		{"link as a link", map[string]string{"src/l": "-> ../../etc/passwd", "dst/": ""}, "src/l", "dst", map[string]string{"l": "-> ../../etc/passwd"}, ""},
		{"links in a folder", map[string]string{"src/d/a": "1", "src/d/l": "-> a", "src/d/up": "-> ..", "src/d/gone": "-> /gone", "src/d/self": "-> self", "dst/": ""}, "src/d", "dst",
			map[string]string{"d/": "", "d/a": "1", "d/l": "-> a", "d/up": "-> ..", "d/gone": "-> /gone", "d/self": "-> self"}, ""},
		{"link over a file and a link", map[string]string{"src/d/a": "-> 1", "src/d/b": "-> 2", "dst/d/a": "old", "dst/d/b": "-> old"}, "src/d", "dst",
			map[string]string{"d/": "", "d/a": "-> 1", "d/b": "-> 2"}, ""},
		{"link to a folder followed by a slash", map[string]string{"src/real/a": "1", "src/l": "-> real", "dst/": ""}, "src/l/", "dst", map[string]string{"l/": "", "l/a": "1"}, ""},
		{"link over a folder", map[string]string{"src/d/a": "-> 1", "dst/d/a/": ""}, "src/d", "dst", map[string]string{"d/": "", "d/a/": ""}, "is a folder there"},
		{"a source that is not there", map[string]string{"dst/": ""}, "src/a", "dst/x/b", map[string]string{}, "no such file"},
		{"odd names", map[string]string{"src/d/ ": "1", "src/d/-rf": "2", "src/d/new\nline": "3", "src/d/\xff\xfe": "4", "src/d/$(id)": "5", "src/d/x:1:y": "6", "dst/": ""}, "src/d/.", "dst",
			map[string]string{" ": "1", "-rf": "2", "new\nline": "3", "\xff\xfe": "4", "$(id)": "5", "x:1:y": "6"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			lay(t, root, tt.tree)
			// filepath.Join would take the meaning of a last slash or dot away.
			err := Copy(t.Context(), Endpoint{Local(), root + "/" + tt.from}, Endpoint{Local(), root + "/" + tt.to}, Options{})
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want %q in it", err, tt.err)
			}
			if got := look(t, filepath.Join(root, "dst")); !maps.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// A link in the destination is replaced by a file, and not passed through by a
// folder: what it leads to is as it was.
func TestLinksInTheDestinationAreNotFollowed(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{
		"outside/passwd": "root", "outside/sub/a": "keep",
		"src/d/passwd": "evil", "dst/d/passwd": "-> ../../outside/passwd",
		"src/e/sub/a": "evil", "dst/e/sub": "-> ../../outside/sub",
	})
	if err := Copy(t.Context(), Endpoint{Local(), root + "/src/d"}, Endpoint{Local(), root + "/dst"}, Options{}); err != nil {
		t.Fatal(err)
	}
	err := Copy(t.Context(), Endpoint{Local(), root + "/src/e"}, Endpoint{Local(), root + "/dst"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "is a link there") {
		t.Errorf("a folder through a link: %v", err)
	}
	if got := look(t, filepath.Join(root, "outside")); got["passwd"] != "root" || got["sub/a"] != "keep" {
		t.Errorf("outside was changed: %q", got)
	}
	if got := look(t, filepath.Join(root, "dst")); got["d/passwd"] != "evil" || got["e/sub"] != "-> ../../outside/sub" {
		t.Errorf("got %q", got)
	}
}

func TestPermissions(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // it must not show
	root := t.TempDir()
	lay(t, root, map[string]string{"src/ro/deep/a": "1", "src/x.sh": "2", "src/secret": "3", "src/open/": "", "dst/src/x.sh": "old", "dst/src/open/": ""})
	modes := map[string]fs.FileMode{
		"ro/deep/a": 0o444, "ro/deep": 0o555, "ro": 0o500, "x.sh": 0o751, "secret": 0o000, "open": 0o777, ".": 0o755,
	}
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(root, "src", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 { // whom 000 keeps from reading
		modes["secret"] = 0o400
		if err := os.Chmod(filepath.Join(root, "src/secret"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "dst/src"), 0o750); err != nil {
		t.Fatal(err)
	}
	modes["."] = 0o750 // a folder that was there to be copied into is its owner's
	t.Cleanup(func() {
		for _, side := range []string{"src", "dst/src"} {
			for _, dir := range []string{"ro", "ro/deep"} {
				os.Chmod(filepath.Join(root, side, dir), 0o755)
			}
		}
	})
	if err := Copy(t.Context(), Endpoint{Local(), root + "/src"}, Endpoint{Local(), root + "/dst"}, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range modes {
		info, err := os.Stat(filepath.Join(root, "dst/src", name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

func TestSetuidIsNotCopied(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"a": "1"})
	if err := os.Chmod(filepath.Join(root, "a"), fs.ModeSetuid|fs.ModeSetgid|0o755); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), Endpoint{Local(), root + "/a"}, Endpoint{Local(), root + "/b"}, Options{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(root, "b")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestWhatIsLeftOutIsTold(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"src/a": "1", "src/z": "2"})
	if err := syscall.Mkfifo(filepath.Join(root, "src/fi\x1bfo"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Copy(t.Context(), Endpoint{Local(), root + "/src"}, Endpoint{Local(), root + "/dst"}, Options{})
	var incomplete *IncompleteError
	if !errors.As(err, &incomplete) || len(incomplete.Left) != 1 || !strings.Contains(err.Error(), `fi\x1bfo" (a fifo)`) {
		t.Errorf("got %v", err)
	}
	if got := look(t, filepath.Join(root, "dst")); !maps.Equal(got, map[string]string{"a": "1", "z": "2"}) {
		t.Errorf("got %q", got)
	}
}

func TestProgressTellsAllBytes(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"src/a": strings.Repeat("x", 600_000), "src/b": "12345"})
	var total, done int64
	err := Copy(t.Context(), Endpoint{Local(), root + "/src"}, Endpoint{Local(), root + "/dst"}, Options{
		Begin:    func(n int64) { total = n },
		Progress: func(n int) { done += int64(n) },
	})
	if err != nil || total != 600_005 || done != total {
		t.Errorf("%d of %d bytes, %v", done, total, err)
	}
}

// fakeSide is a source that answers what a hostile or broken provider might.
type fakeSide struct {
	Side
	entries map[string][]workspace.FileInfo
	content func(path string) (io.ReadCloser, error)
}

func (s *fakeSide) lstat(context.Context, string) (workspace.FileInfo, error) {
	return workspace.FileInfo{Name: "top", Mode: fs.ModeDir | 0o755}, nil
}
func (s *fakeSide) split(path string) (folder, name string) { return ".", path }
func (s *fakeSide) tree(context.Context, string, bool) (tree, error) {
	return &fakeTree{fakeSide: s}, nil
}
func (s *fakeSide) describe(path string) string { return "fake:" + path }

type fakeTree struct {
	*fakeSide
	tree
}

func (t *fakeTree) readDir(_ context.Context, path string) ([]workspace.FileInfo, error) {
	return t.entries[path], nil
}
func (t *fakeTree) open(_ context.Context, path string) (io.ReadCloser, error) {
	return t.content(path)
}
func (t *fakeTree) describe(path string) string { return "fake:" + path }
func (t *fakeTree) close() error                { return nil }
func (t *fakeTree) lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return t.fakeSide.lstat(ctx, path)
}

func file(name string) workspace.FileInfo {
	return workspace.FileInfo{Name: name, Size: 4, Mode: 0o644}
}
func dir(name string) workspace.FileInfo {
	return workspace.FileInfo{Name: name, Mode: fs.ModeDir | 0o755}
}

func TestNamesThatWouldLeaveTheDestinationAreRefused(t *testing.T) {
	for _, name := range []string{"..", ".", "", "../evil", "/evil", "a/b", "nul\x00"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			root := t.TempDir()
			src := &fakeSide{
				entries: map[string][]workspace.FileInfo{".": {file("a"), dir("sub")}, "sub": {file(name)}},
				content: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("evil")), nil },
			}
			err := Copy(t.Context(), Endpoint{src, "top"}, Endpoint{Local(), root + "/dst"}, Options{})
			if err == nil || !strings.Contains(err.Error(), "fake:sub") {
				t.Errorf("error %v, want one that names the folder", err)
			}
			if got := look(t, root); len(got) != 0 {
				t.Errorf("something was written: %q", got)
			}
		})
	}
}

// A source that lists a name twice, first as a link and then as a folder, wants
// the folder's files to be written where the link leads.
func TestALinkAndAFolderOfOneName(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"outside/": ""})
	link := workspace.FileInfo{Name: "x", Mode: fs.ModeSymlink | 0o777, Link: true, Target: root + "/outside"}
	src := &fakeSide{
		entries: map[string][]workspace.FileInfo{".": {link, dir("x")}, "x": {file("evil")}},
		content: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("evil")), nil },
	}
	err := Copy(t.Context(), Endpoint{src, "top"}, Endpoint{Local(), root + "/dst"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("got %v", err)
	}
	if got := look(t, filepath.Join(root, "outside")); len(got) != 0 {
		t.Errorf("the link was followed: %q", got)
	}
}

func TestAFailedCopyLeavesNoHalf(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"dst/top/a": "old"})
	broken := errors.New("line cut")
	src := &fakeSide{
		entries: map[string][]workspace.FileInfo{".": {file("a")}},
		content: func(string) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("half"), errReader{broken})), nil
		},
	}
	err := Copy(t.Context(), Endpoint{src, "top"}, Endpoint{Local(), root + "/dst"}, Options{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "reading fake:a") {
		t.Errorf("got %v", err)
	}
	if got := look(t, filepath.Join(root, "dst")); !maps.Equal(got, map[string]string{"top/": "", "top/a": "old"}) {
		t.Errorf("got %q", got)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestACancelledCopyEnds(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{"src/a": "1", "src/b": "2"})
	ctx, cancel := context.WithCancel(t.Context())
	err := Copy(ctx, Endpoint{Local(), root + "/src"}, Endpoint{Local(), root + "/dst"}, Options{Progress: func(int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := look(t, filepath.Join(root, "dst")); !maps.Equal(got, map[string]string{"a": "1"}) {
		t.Errorf("got %q", got)
	}
}
