//go:build unix

package posix_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

func put(t testing.TB, ws *posix.Workspace, path, content string, opts workspace.WriteOptions) error {
	t.Helper()
	w, err := ws.Create(t.Context(), path, opts)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Close()
}

func get(t testing.TB, ws *posix.Workspace, path string, opts workspace.ReadOptions) (string, error) {
	t.Helper()
	r, err := ws.Open(t.Context(), path, opts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// must makes a fixture.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantError checks kind, and that the path is the caller's.
func wantError(t testing.TB, what string, err, want error, path string) {
	t.Helper()
	var pathErr *fs.PathError
	if !errors.Is(err, want) || !errors.As(err, &pathErr) || pathErr.Path != path {
		t.Errorf("%s: %v, want a PathError of %q with %v", what, err, path, want)
	}
}

// leftovers are names that only a write under way may have.
func leftovers(t testing.TB, ws *posix.Workspace) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(ws.WorkingDir(), func(path string, entry fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			names = append(names, path)
		}
		return err
	}))
	return names
}

func TestF2_Write(t *testing.T) {
	old := syscall.Umask(0o077) // modes are exact whatever it is
	defer syscall.Umask(old)
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t,
		os.WriteFile(dir+"/kept", []byte("old"), 0o600), os.Chmod(dir+"/kept", 0o751),
		os.WriteFile(dir+"/target", []byte("old, and longer"), 0o640), os.Symlink("target", dir+"/link"),
		os.Symlink("made/by/link", dir+"/dangling"),
		os.WriteFile(dir+"/one", []byte("old, and longer"), 0o644), os.Link(dir+"/one", dir+"/two"),
		os.Chmod(dir+"/target", 0o640), os.Chmod(dir+"/one", 0o644),
		os.WriteFile(dir+"/appended", []byte("begin "), 0o640), os.Chmod(dir+"/appended", 0o640),
	)
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, test := range []struct {
		path string
		opts workspace.WriteOptions
		file string // where it is then
		want string
		mode fs.FileMode
	}{
		{"new", workspace.WriteOptions{}, "new", "content", 0o644},
		{"told", workspace.WriteOptions{Mode: 0o777}, "told", "content", 0o777},
		{"a/b/c", workspace.WriteOptions{}, "a/b/c", "content", 0o644},
		{dir + "/absolute", workspace.WriteOptions{ModTime: when}, "absolute", "content", 0o644},
		{"kept", workspace.WriteOptions{Mode: 0o600}, "kept", "content", 0o751},
		{"link", workspace.WriteOptions{}, "target", "content", 0o640},
		{"dangling", workspace.WriteOptions{}, "made/by/link", "content", 0o644},
		{"one", workspace.WriteOptions{}, "two", "content", 0o644},
		{"appended", workspace.WriteOptions{Append: true, ModTime: when}, "appended", "begin content", 0o640},
		{"append-new", workspace.WriteOptions{Append: true}, "append-new", "content", 0o644},
		{"exclusive", workspace.WriteOptions{Exclusive: true}, "exclusive", "content", 0o644},
		{"-rf $(id) \n'\"\xff", workspace.WriteOptions{}, "-rf $(id) \n'\"\xff", "content", 0o644},
	} {
		if err := put(t, ws, test.path, "content", test.opts); err != nil {
			t.Errorf("%q: %v", test.path, err)
			continue
		}
		data, err := os.ReadFile(dir + "/" + test.file)
		must(t, err)
		info, err := os.Lstat(dir + "/" + test.file)
		must(t, err)
		if string(data) != test.want || info.Mode() != test.mode {
			t.Errorf("%q: %q with mode %v, want %q with %v", test.path, data, info.Mode(), test.want, test.mode)
		}
		if !test.opts.ModTime.IsZero() && !info.ModTime().Equal(test.opts.ModTime) {
			t.Errorf("%q: time %v, want %v", test.path, info.ModTime(), test.opts.ModTime)
		}
	}
	if info, err := os.Lstat(dir + "/link"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if info, err := os.Lstat(dir + "/a"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a parent's mode is %v, %v", info.Mode(), err)
	}
	if left := leftovers(t, ws); left != nil {
		t.Errorf("left: %q", left)
	}
}

func TestF2_NothingIsVisibleBeforeClose(t *testing.T) {
	ws := openWorkspace(t)
	must(t, put(t, ws, "f", "old", workspace.WriteOptions{}))
	must(t, os.Link(ws.WorkingDir()+"/f", ws.WorkingDir()+"/hard"))
	for _, test := range []struct {
		path string
		opts workspace.WriteOptions
		old  string
	}{{"f", workspace.WriteOptions{}, "old"}, {"f", workspace.WriteOptions{Append: true}, "old"}, {"new", workspace.WriteOptions{}, ""}} {
		for name, end := range map[string]func(w workspace.FileWriter, cancel func()){
			"abort": func(w workspace.FileWriter, _ func()) { must(t, w.Abort(), w.Close()) },
			"cancel": func(w workspace.FileWriter, cancel func()) {
				cancel()
				eventually(t, "the write is aborted", func() bool { _, err := w.Write([]byte("x")); return errors.Is(err, context.Canceled) })
				if err := w.Close(); !errors.Is(err, context.Canceled) {
					t.Errorf("Close after the context's end: %v", err)
				}
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			w, err := ws.Create(ctx, test.path, test.opts)
			must(t, err)
			_, err = io.WriteString(w, strings.Repeat("half ", 100_000))
			must(t, err)
			end(w, cancel)
			cancel()
			if got, _ := get(t, ws, test.path, workspace.ReadOptions{}); got != test.old {
				t.Errorf("%s %+v, %s: %.20q", test.path, test.opts, name, got)
			}
		}
	}
	infos, err := ws.ReadDir(t.Context(), ".")
	must(t, err)
	if len(infos) != 2 {
		t.Errorf("left: %+v", infos)
	}
}

func TestF3_Errors(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t,
		os.WriteFile(dir+"/file", nil, 0o644), os.Mkdir(dir+"/dir", 0o755), os.WriteFile(dir+"/dir/f", nil, 0o644),
		os.Symlink("loop", dir+"/loop"), os.Symlink("gone", dir+"/dangling"),
		unix.Mkfifo(dir+"/fifo", 0o644),
	)
	long := strings.Repeat("n", 300)
	stat := func(path string) error { _, err := ws.Stat(t.Context(), path); return err }
	list := func(path string) error { _, err := ws.ReadDir(t.Context(), path); return err }
	read := func(path string) error { _, err := get(t, ws, path, workspace.ReadOptions{}); return err }
	write := func(path string) error { return put(t, ws, path, "x", workspace.WriteOptions{}) }
	exclusive := func(path string) error { return put(t, ws, path, "x", workspace.WriteOptions{Exclusive: true}) }
	mkdir := func(path string) error { return ws.MkdirAll(t.Context(), path) }
	remove := func(path string) error { return ws.Remove(t.Context(), path) }
	readlink := func(path string) error { _, err := ws.Readlink(t.Context(), path); return err }
	realpath := func(path string) error { _, err := ws.RealPath(t.Context(), path); return err }
	for _, test := range []struct {
		what string
		do   func(string) error
		path string
		want error
	}{
		{"stat", stat, "gone", fs.ErrNotExist}, {"stat", stat, "dangling", fs.ErrNotExist}, {"stat", stat, "loop", syscall.ELOOP},
		{"stat", stat, "file/x", syscall.ENOTDIR}, {"stat", stat, long, syscall.ENAMETOOLONG}, {"stat", stat, "", workspace.ErrInvalid}, {"stat", stat, "a\x00b", workspace.ErrInvalid},
		{"list", list, "gone", fs.ErrNotExist}, {"list", list, "file", syscall.ENOTDIR}, {"list", list, "fifo", syscall.ENOTDIR},
		{"read", read, "gone", fs.ErrNotExist}, {"read", read, "dir", syscall.EISDIR}, {"read", read, "fifo", workspace.ErrInvalid}, {"read", read, "/dev/zero", workspace.ErrInvalid}, {"read", read, "loop", syscall.ELOOP},
		{"write", write, "dir", syscall.EISDIR}, {"write", write, "dir/", syscall.EISDIR}, {"write", write, "new/", syscall.EISDIR}, {"write", write, "file/", syscall.ENOTDIR},
		{"write", write, "file/x", syscall.ENOTDIR}, {"write", write, "fifo", workspace.ErrInvalid}, {"write", write, "/dev/null", workspace.ErrInvalid}, {"write", write, "loop", syscall.ELOOP}, {"write", write, long, syscall.ENAMETOOLONG}, {"write", write, "..", syscall.EISDIR},
		{"exclusive", exclusive, "file", fs.ErrExist}, {"exclusive", exclusive, "dangling", fs.ErrExist}, {"exclusive", exclusive, "dir", fs.ErrExist},
		{"mkdir", mkdir, "file", fs.ErrExist}, {"mkdir", mkdir, "file/x/y", syscall.ENOTDIR}, {"mkdir", mkdir, "dangling", fs.ErrExist},
		{"remove", remove, "gone", fs.ErrNotExist}, {"remove", remove, "gone/x", fs.ErrNotExist}, {"remove", remove, ".", workspace.ErrInvalid}, {"remove", remove, "..", workspace.ErrInvalid},
		{"remove", remove, "dir/..", workspace.ErrInvalid}, {"remove", remove, "/", workspace.ErrInvalid}, {"remove", remove, dir, workspace.ErrInvalid}, {"remove", remove, dir + "/", workspace.ErrInvalid}, {"remove", remove, filepath.Dir(dir), workspace.ErrInvalid},
		{"readlink", readlink, "file", syscall.EINVAL}, {"realpath", realpath, "loop", syscall.ELOOP}, {"realpath", realpath, "loop/x/..", syscall.ELOOP},
	} {
		begun := time.Now()
		wantError(t, test.what, test.do(test.path), test.want, test.path)
		if took := time.Since(begun); took > soon {
			t.Errorf("%s %q took %v", test.what, test.path, took)
		}
	}
	if left := leftovers(t, ws); left != nil {
		t.Errorf("left: %q", left)
	}
}

// TestF3_Permissions is of the file's own permissions, which for root are none.
func TestF3_Permissions(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t,
		os.WriteFile(dir+"/read-only", []byte("old"), 0o444), os.Mkdir(dir+"/locked", 0o755),
		os.WriteFile(dir+"/locked/f", []byte("old"), 0o644), os.Chmod(dir+"/locked", 0o555),
	)
	t.Cleanup(func() { _ = os.Chmod(dir+"/locked", 0o755) })
	// The folder cannot be written, the file can.
	must(t, put(t, ws, "locked/f", "new", workspace.WriteOptions{}))
	if got, err := get(t, ws, "locked/f", workspace.ReadOptions{}); got != "new" || err != nil {
		t.Errorf("locked/f: %q, %v", got, err)
	}
	readOnly, inLocked, removed := put(t, ws, "read-only", "new", workspace.WriteOptions{}), put(t, ws, "locked/new", "new", workspace.WriteOptions{}), ws.Remove(t.Context(), "locked/f")
	if os.Geteuid() == 0 {
		must(t, readOnly, inLocked, removed)
		return
	}
	wantError(t, "write", readOnly, fs.ErrPermission, "read-only")
	wantError(t, "write", inLocked, fs.ErrPermission, "locked/new")
	wantError(t, "remove", removed, fs.ErrPermission, "locked/f")
}

func TestF4_Listing(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t,
		os.WriteFile(dir+"/b", []byte("four"), 0o640), os.Chmod(dir+"/b", 0o640), os.Mkdir(dir+"/B", 0o755), os.WriteFile(dir+"/\xff", nil, 0o644), os.WriteFile(dir+"/-rf\n", nil, 0o644),
		os.Symlink("b", dir+"/to-file"), os.Symlink("B", dir+"/to-dir"), os.Symlink("gone", dir+"/dangling"), os.Symlink("loop", dir+"/loop"),
	)
	infos, err := ws.ReadDir(t.Context(), ".")
	must(t, err)
	var names []string
	byName := map[string]workspace.FileInfo{}
	for _, info := range infos {
		names = append(names, info.Name)
		byName[info.Name] = info
	}
	if want := []string{"-rf\n", "B", "b", "dangling", "loop", "to-dir", "to-file", "\xff"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	for name, want := range map[string]workspace.FileInfo{
		"b": {Size: 4, Mode: 0o640}, "to-file": {Size: 4, Mode: 0o640, Link: true, Target: "b"},
		"dangling": {Size: 4, Mode: fs.ModeSymlink | 0o777, Link: true, Target: "gone"}, "loop": {Size: 4, Mode: fs.ModeSymlink | 0o777, Link: true, Target: "loop"},
	} {
		got := byName[name]
		if got.ModTime.IsZero() {
			t.Errorf("%s has no time", name)
		}
		want.Name, want.ModTime = name, got.ModTime
		if got != want {
			t.Errorf("listed %+v, want %+v", got, want)
		}
	}
	if got := byName["to-dir"]; !got.IsDir() || !got.Link || got.Target != "B" {
		t.Errorf("to-dir: %+v", got)
	}
	followed, err := ws.Stat(t.Context(), "to-file")
	must(t, err)
	own, err := ws.Lstat(t.Context(), "to-file")
	must(t, err)
	if followed.Mode != 0o640 || !followed.Link || own.Mode&fs.ModeSymlink == 0 || own.Target != "b" || own.Size != 1 {
		t.Errorf("Stat %+v, Lstat %+v", followed, own)
	}
}

func TestF4_ManyNames(t *testing.T) {
	const many = 100_000
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t, os.WriteFile(dir+"/0", nil, 0o644))
	for i := 1; i < many; i++ { // links are made twice as fast as files
		if i%10_000 == 0 {
			must(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
			continue
		}
		must(t, os.Link(fmt.Sprintf("%s/%d", dir, i/10_000*10_000), fmt.Sprintf("%s/%d", dir, i)))
	}
	infos, err := ws.ReadDir(t.Context(), ".")
	must(t, err)
	if len(infos) != many || !slices.IsSortedFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d names, sorted or not", len(infos))
	}
	must(t, ws.Remove(t.Context(), dir+"/../"+filepath.Base(dir)+"/99999"))
}

func TestF5_F6_Folders(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	for _, path := range []string{"a/b/c", "a/b/c", "a/b/c/", "a/../x/../y", "."} {
		must(t, ws.MkdirAll(t.Context(), path))
	}
	must(t, os.WriteFile(dir+"/outside", nil, 0o644), os.Symlink("../../outside", dir+"/a/b/link"), os.Symlink("../x", dir+"/a/to-dir"), os.WriteFile(dir+"/x/kept", nil, 0o644))
	wantError(t, "remove", ws.Remove(t.Context(), "a/to-dir/"), syscall.ENOTDIR, "a/to-dir/")
	must(t, ws.Remove(t.Context(), "a/to-dir"), ws.Remove(t.Context(), "a/b/c/.."), ws.Remove(t.Context(), "a/"))
	for path, want := range map[string]bool{"outside": true, "x/kept": true, "a": false} {
		if _, err := os.Lstat(dir + "/" + path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestF7_RealPath(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	must(t, os.MkdirAll(dir+"/a/b", 0o755), os.Symlink("a/b", dir+"/rel"), os.Symlink(dir+"/rel", dir+"/abs"), os.Symlink("missing/x", dir+"/dangling"), os.WriteFile(dir+"/file", nil, 0o644))
	for path, want := range map[string]string{
		".": dir, "rel": dir + "/a/b", "abs/..": dir + "/a", "rel/../x": dir + "/a/x", "dangling/y": dir + "/missing/x/y", "no/such/../way": dir + "/no/way",
		"file/x": dir + "/file/x", "/": "/", "/../..": "/", "//etc//": "/etc", dir + "/abs/./": dir + "/a/b",
	} {
		if got, err := ws.RealPath(t.Context(), path); err != nil || got != want {
			t.Errorf("RealPath(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestF8_ReadsFromAnyOffset(t *testing.T) {
	ws := openWorkspace(t)
	must(t, put(t, ws, "f", "0123456789", workspace.WriteOptions{}))
	for _, test := range []struct {
		opts workspace.ReadOptions
		want string
	}{
		{workspace.ReadOptions{}, "0123456789"}, {workspace.ReadOptions{Offset: 7}, "789"}, {workspace.ReadOptions{Offset: 3, Length: 4}, "3456"},
		{workspace.ReadOptions{Offset: 8, Length: 40}, "89"}, {workspace.ReadOptions{Offset: 10}, ""}, {workspace.ReadOptions{Offset: 1 << 40}, ""},
	} {
		if got, err := get(t, ws, "f", test.opts); err != nil || got != test.want {
			t.Errorf("%+v: %q, %v; want %q", test.opts, got, err, test.want)
		}
	}
	_, err := get(t, ws, "f", workspace.ReadOptions{Offset: -1})
	wantError(t, "read", err, workspace.ErrInvalid, "f")
	// An open file stays as it was, whatever is put in its place.
	r, err := ws.Open(t.Context(), "f", workspace.ReadOptions{})
	must(t, err)
	defer r.Close()
	must(t, put(t, ws, "f", "other", workspace.WriteOptions{}))
	if data, err := io.ReadAll(r); string(data) != "0123456789" || err != nil || r.Info().Size != 10 {
		t.Errorf("%q, %v, %+v", data, err, r.Info())
	}
	if got, err := get(t, ws, "/proc/self/status", workspace.ReadOptions{}); err != nil || !strings.Contains(got, "Pid:") {
		if _, statErr := os.Stat("/proc/self/status"); statErr == nil {
			t.Errorf("a file that the kernel makes up: %q, %v", got, err)
		}
	}
}

func TestF10_Optional(t *testing.T) {
	ws := openWorkspace(t)
	dir := ws.WorkingDir()
	ctx := t.Context()
	must(t, put(t, ws, "f", "content", workspace.WriteOptions{}), ws.Symlink(ctx, "no/../f\xff", "link"), ws.Chmod(ctx, "f", 0o711), ws.Rename(ctx, "f", "g"))
	if target, err := ws.Readlink(ctx, "link"); err != nil || target != "no/../f\xff" {
		t.Errorf("Readlink: %q, %v", target, err)
	}
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	must(t, ws.Chtimes(ctx, "g", when))
	if info, err := ws.Stat(ctx, "g"); err != nil || info.Mode != 0o711 || !info.ModTime.Equal(when) {
		t.Errorf("%+v, %v", info, err)
	}
	var linkErr *os.LinkError
	if err := ws.Rename(ctx, "gone", "there"); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &linkErr) || linkErr.Old != "gone" || linkErr.New != "there" {
		t.Errorf("Rename of nothing: %v", err)
	}
	if err := ws.Symlink(ctx, "x", "link"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Symlink over a link: %v", err)
	}
	if err := ws.Rename(ctx, dir, dir+"-moved"); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("Rename of the working directory: %v", err)
	}
}

// TestF10_Concurrent has one winner of an exclusive write, and appends that lose
// nothing.
func TestF10_Concurrent(t *testing.T) {
	ws := openWorkspace(t)
	const writers = 20
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			errs[i] = put(t, ws, "lock", strconv.Itoa(i), workspace.WriteOptions{Exclusive: true})
			must(t, put(t, ws, "log", strings.Repeat(string(rune('a'+i)), 1000)+"\n", workspace.WriteOptions{Append: true}))
		})
	}
	wg.Wait()
	log, err := get(t, ws, "log", workspace.ReadOptions{})
	must(t, err)
	lines := strings.SplitAfter(log, "\n")
	slices.Sort(lines)
	for i, line := range lines[1:] { // the first is after the last newline
		if want := strings.Repeat(string(rune('a'+i)), 1000) + "\n"; line != want {
			t.Errorf("line %d: %.20q", i, line)
		}
	}
	if len(lines) != writers+1 {
		t.Errorf("%d lines, want %d", len(lines)-1, writers)
	}
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
			if got, _ := get(t, ws, "lock", workspace.ReadOptions{}); got != strconv.Itoa(i) {
				t.Errorf("%d has won, and the file says %q", i, got)
			}
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
}

func TestLargeFile(t *testing.T) {
	ws := openWorkspace(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	must(t, put(t, ws, "large", string(data), workspace.WriteOptions{}))
	if got, err := get(t, ws, "large", workspace.ReadOptions{}); err != nil || got != string(data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
