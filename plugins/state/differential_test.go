//go:build unix

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// The walker and all that goes by it are held against a real file system: the
// same operations, some of them absurd, on a document and on a folder of this
// machine have the same outcome, and leave the same tree.

// twin does each operation on both.
type twin struct {
	t    testing.TB
	d    *document
	root string // of the real one
}

// real is where a path of the document is. Links that begin with a slash lead
// to the document's root, so that real ones lead to the folder.
func (w *twin) real(path string) string { return w.root + path }

func (w *twin) realTarget(target string) string {
	if strings.HasPrefix(target, "/") {
		return w.root + target
	}
	return target
}

// errno is what an error comes to.
func errno(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, workspace.ErrInvalid):
		return "invalid"
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}

func (w *twin) write(path string, data []byte, opts workspace.WriteOptions) (string, string) {
	got := write(context.Background(), w.d, path, data, opts)
	flags := os.O_WRONLY | os.O_CREATE
	if opts.Exclusive {
		flags |= os.O_EXCL
	}
	if opts.Append {
		flags |= os.O_APPEND
	} else {
		flags |= os.O_TRUNC
	}
	f, want := os.OpenFile(w.real(path), flags, 0o644)
	if want == nil {
		_, want = f.Write(data)
		want = errors.Join(want, f.Close())
	}
	return errno(got), errno(want)
}

// step makes one random operation.
func (w *twin) step(r *rand.Rand) (what, got, want string) {
	ctx := context.Background()
	path, other := w.path(r), w.path(r)
	if path == "" || other == "" {
		return "", "", ""
	}
	switch op := r.IntN(12); op {
	case 0, 1:
		opts := workspace.WriteOptions{Exclusive: r.IntN(4) == 0, Append: r.IntN(3) == 0}
		if !w.parentThere(path) {
			return "", "", "" // a document makes it, a real file system does not
		}
		got, want = w.write(path, []byte(strconv.Itoa(r.IntN(1000))), opts)
		return fmt.Sprintf("write %q %+v", path, opts), got, want
	case 2, 3:
		target := w.target(r)
		got := w.d.Symlink(ctx, target, path)
		want := os.Symlink(w.realTarget(target), w.real(path))
		return fmt.Sprintf("symlink %q -> %q", path, target), errno(got), errno(want)
	case 4, 5:
		if !w.parentThere(path) {
			return "", "", ""
		}
		got := w.d.MkdirAll(ctx, path)
		want := os.Mkdir(w.real(path), 0o755)
		if info, err := os.Stat(w.real(path)); err == nil && info.IsDir() {
			want = nil
		}
		if errors.Is(got, syscall.ELOOP) && errors.Is(want, fs.ErrExist) {
			want = syscall.ELOOP
		}
		return fmt.Sprintf("mkdir %q", path), errno(got), errno(want)
	case 6:
		if strings.Trim(path, "/.") == "" || strings.HasSuffix(path, ".") {
			return "", "", ""
		}
		_, err := os.Lstat(w.real(path))
		if strings.HasSuffix(path, "/") && !w.isDirItself(path) {
			return "", "", "" // a link with a slash is ENOTDIR, though Go's RemoveAll takes it
		}
		got := w.d.Remove(ctx, path)
		var want error
		if err != nil {
			want = err
		} else {
			want = os.RemoveAll(w.real(path))
		}
		return fmt.Sprintf("remove %q", path), errno(got), errno(want)
	case 7, 8:
		got := w.d.Rename(ctx, path, other)
		want := syscall.Rename(w.real(path), w.real(other))
		g, x := errno(got), errno(want)
		if g != "ok" && x != "ok" {
			g, x = "error", "error" // which of several reasons comes first is the kernel's own
		}
		return fmt.Sprintf("rename %q to %q", path, other), g, x
	case 9:
		got, gotErr := w.d.Readlink(ctx, path)
		want, wantErr := os.Readlink(w.real(path))
		return fmt.Sprintf("readlink %q", path), got + errno(gotErr), strings.TrimPrefix(want, w.root) + errno(wantErr)
	case 10:
		got, gotErr := w.d.RealPath(ctx, path)
		want, wantErr := filepath.EvalSymlinks(w.real(path))
		if wantErr != nil { // which says less than realpath -m
			return "", "", ""
		}
		want = strings.TrimPrefix(want, w.root)
		if want == "" {
			want = "/"
		}
		return fmt.Sprintf("realpath %q", path), got + errno(gotErr), want + "ok"
	default:
		got, gotErr := read(ctx, w.d, path, workspace.ReadOptions{})
		want, wantErr := os.ReadFile(w.real(path))
		return fmt.Sprintf("read %q", path), string(got) + errno(gotErr), string(want) + errno(wantErr)
	}
}

func (w *twin) isDirItself(path string) bool {
	info, err := os.Lstat(strings.TrimRight(w.real(path), "/"))
	return err == nil && info.IsDir()
}

// parentThere reports whether the last element's directory exists.
func (w *twin) parentThere(path string) bool {
	trimmed := strings.TrimRight(path, "/")
	info, err := os.Stat(w.real(trimmed[:strings.LastIndexByte(trimmed, '/')+1]))
	return err == nil && info.IsDir()
}

var twinNames = []string{"a", "b", "c", "\xff"}

// path is a random one that does not lead above the root, or "" where links that
// do leave none.
func (w *twin) path(r *rand.Rand) string {
	for range 100 {
		path := "/" + w.names(r, 1+r.IntN(4))
		if r.IntN(6) == 0 {
			path += "/"
		}
		if !w.above(path) && strings.Trim(path, "/") != "" && !strings.HasSuffix(strings.TrimRight(path, "/"), ".") {
			return path
		}
	}
	return ""
}

// target is a random one for a link.
func (w *twin) target(r *rand.Rand) string {
	target := w.names(r, 1+r.IntN(3))
	if r.IntN(3) == 0 {
		target = "/" + target
	}
	if r.IntN(8) == 0 {
		target += "/"
	}
	return target
}

func (w *twin) names(r *rand.Rand, n int) string {
	names := make([]string, n)
	for i := range names {
		switch r.IntN(8) {
		case 0:
			names[i] = ".."
		case 1:
			names[i] = "."
		default:
			names[i] = twinNames[r.IntN(len(twinNames))]
		}
	}
	return strings.Join(names, "/")
}

// above reports whether a path leads out of the real folder: where the document
// would stay at its root, the real one would show this machine. It goes step by
// step by the real links.
func (w *twin) above(path string) bool {
	rest, at := strings.Split(path, "/"), ""
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return true
			}
			at = at[:strings.LastIndexByte(at, '/')]
			continue
		}
		next := at + "/" + name
		target, err := os.Readlink(w.root + next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return false
		}
		if inside, ok := strings.CutPrefix(target, w.root); ok {
			target, at = inside, ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false
}

// compare walks both trees.
func (w *twin) compare() string {
	var diffs []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := os.ReadDir(w.real(dir))
		if err != nil {
			w.t.Fatal(err)
		}
		infos, err := w.d.ReadDir(context.Background(), dir)
		if err != nil {
			diffs = append(diffs, fmt.Sprintf("list %q: %v", dir, err))
			return
		}
		if len(entries) != len(infos) {
			diffs = append(diffs, fmt.Sprintf("%q has %d entries, want %d", dir, len(infos), len(entries)))
			return
		}
		for i, entry := range entries {
			path := dir + entry.Name()
			diffs = append(diffs, w.compareEntry(path, infos[i], entry)...)
			if entry.IsDir() {
				walk(path + "/")
			}
		}
	}
	walk("/")
	return strings.Join(diffs, "\n")
}

func (w *twin) compareEntry(path string, info workspace.FileInfo, entry fs.DirEntry) (diffs []string) {
	if info.Name != entry.Name() || info.Link != (entry.Type() == fs.ModeSymlink) {
		return []string{fmt.Sprintf("%q: %+v, want %v", path, info, entry)}
	}
	if w.above(path) {
		return nil
	}
	want, err := os.Stat(w.real(path))
	leads := err == nil
	if !leads {
		want, err = os.Lstat(w.real(path))
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if info.Mode != want.Mode() && info.Mode.Type() != fs.ModeSymlink || want.Mode().IsRegular() && info.Size != want.Size() {
		diffs = append(diffs, fmt.Sprintf("%q: mode %v size %d, want %v size %d", path, info.Mode, info.Size, want.Mode(), want.Size()))
	}
	stat, err := w.d.Stat(context.Background(), path)
	if leads != (err == nil) || leads && stat.Mode != want.Mode() {
		diffs = append(diffs, fmt.Sprintf("stat %q: %v, %v; want %v", path, stat.Mode, err, want.Mode()))
	}
	return diffs
}

// differ runs n operations of a seed on a fresh twin.
func differ(t testing.TB, d *document, seed uint64, n int) {
	t.Helper()
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &twin{t: t, d: d, root: root}
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
	var log []string
	for range n {
		what, got, want := w.step(r)
		if what == "" {
			continue
		}
		log = append(log, what)
		if got != want {
			t.Fatalf("seed %d: %s: %q, want %q\nafter:\n%s", seed, what, got, want, strings.Join(log[max(0, len(log)-40):], "\n"))
		}
	}
	if diff := w.compare(); diff != "" {
		t.Fatalf("seed %d: the trees differ: %s\nafter:\n%s", seed, diff, strings.Join(log, "\n"))
	}
}

func TestADocumentBehavesAsARealFileSystem(t *testing.T) {
	p := newProvider(t, Config{Store: "memory"}, "notes")
	for seed := range uint64(120) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { differ(t, create(t, p, ""), seed, 60) })
	}
}

func FuzzDifferential(f *testing.F) {
	f.Add(uint64(1), uint8(100))
	p := newProvider(f, Config{Store: "memory"}, "notes")
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		d := create(t, p, "")
		differ(t, d, seed, int(n))
		if err := p.Destroy(t.Context(), d.key); err != nil {
			t.Fatal(err)
		}
	})
}
