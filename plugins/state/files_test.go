package state

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestF2_WhatIsWrittenIsRead(t *testing.T) {
	sizes := []int{0, 1, 1000, smallTail - 1, smallTail, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 7, 9 * chunkSize}
	eachStore(t, func(t *testing.T, d *document) {
		for i, size := range sizes {
			path := fmt.Sprintf("/deep/er/f%d", i)
			data := pattern(size, byte(i))
			mustWrite(t, d, path, string(data))
			wantFile(t, d, path, string(data))
			info, err := d.Stat(t.Context(), path)
			if err != nil || info.Size != int64(size) || info.Mode != workspace.DefaultFileMode {
				t.Fatalf("%d bytes: stat %+v, %v", size, info, err)
			}
			for _, opts := range []workspace.ReadOptions{{Offset: 1}, {Offset: int64(size) / 2, Length: 5}, {Offset: int64(size) + 5}, {Offset: chunkSize - 1, Length: 2}, {Length: chunkSize + 1}, {Length: 1 << 62, Offset: 3}} {
				want := data[min(opts.Offset, int64(size)):]
				if opts.Length > 0 {
					want = want[:min(opts.Length, int64(len(want)))]
				}
				got, err := read(t.Context(), d, path, opts)
				if err != nil || string(got) != string(want) {
					t.Fatalf("%d bytes, %+v: %d bytes, %v; want %d", size, opts, len(got), err, len(want))
				}
			}
		}
	})
}

func TestF2_AppendAddsToTheEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, d *document) {
		var want []byte
		for i, size := range []int{0, 5, 100, smallTail, 3, chunkSize, 10, 2*chunkSize + 1, 1, 4 * chunkSize, 7} {
			data := pattern(size, byte(i))
			if err := write(t.Context(), d, "/log", data, workspace.WriteOptions{Append: true}); err != nil {
				t.Fatal(err)
			}
			want = append(want, data...)
			wantFile(t, d, "/log", string(want))
		}
		// One that read before sees what was there.
		r, err := d.Open(t.Context(), "/log", workspace.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := write(t.Context(), d, "/log", []byte("more"), workspace.WriteOptions{Append: true}); err != nil {
			t.Fatal(err)
		}
		if got := r.Info().Size; got != int64(len(want)) {
			t.Fatalf("reader of %d bytes, want %d", got, len(want))
		}
	})
}

func TestF2_WriteKeepsModeAndGoesThroughLinks(t *testing.T) {
	d := newDocument(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	when := time.Date(1999, 12, 31, 23, 59, 58, 123456789, time.UTC)
	must(write(ctx, d, "/dir/run.sh", []byte("1"), workspace.WriteOptions{Mode: 0o755, ModTime: when}))
	must(d.Symlink(ctx, "dir/run.sh", "/link"))
	info, err := d.Stat(ctx, "/link")
	must(err)
	if !info.Link || info.Target != "dir/run.sh" || info.Name != "link" || info.Mode != 0o755 || !info.ModTime.Equal(when) {
		t.Fatalf("stat of the link: %+v", info)
	}
	must(write(ctx, d, "/link", []byte("22"), workspace.WriteOptions{Mode: 0o600}))
	wantFile(t, d, "/dir/run.sh", "22")
	info, err = d.Lstat(ctx, "/dir/run.sh")
	must(err)
	if info.Mode != 0o755 || info.Size != 2 {
		t.Fatalf("after the write through the link: %+v", info)
	}
	must(d.Symlink(ctx, "new", "/dangling"))
	must(write(ctx, d, "/dangling", []byte("x"), workspace.WriteOptions{}))
	wantFile(t, d, "/new", "x")
	must(d.Chmod(ctx, "/link", 0o4711|fs.ModeSetuid))
	info, err = d.Stat(ctx, "/dir/run.sh")
	must(err)
	if info.Mode != 0o711|fs.ModeSetuid {
		t.Fatalf("mode %v", info.Mode)
	}
	ancient := time.Time{}.Add(time.Hour)
	must(d.Chtimes(ctx, "/dir", ancient))
	info, err = d.Stat(ctx, "/dir")
	must(err)
	if !info.ModTime.Equal(ancient) {
		t.Fatalf("time %v, want %v", info.ModTime, ancient)
	}
}

func TestF3_ErrorsAreTheStandardLibrarys(t *testing.T) {
	eachStore(t, func(t *testing.T, d *document) {
		ctx := t.Context()
		mustWrite(t, d, "/file", "x")
		mustWrite(t, d, "/full/file", "x")
		for target, path := range map[string]string{"loop2": "/loop1", "loop1": "/loop2", "nowhere": "/dangling", "full": "/tofull", "file": "/tofile", "no/such/dir": "/deepdangling"} {
			if err := d.Symlink(ctx, target, path); err != nil {
				t.Fatal(err)
			}
		}
		long := strings.Repeat("n", maxNameLen+1)
		exclusive := func(path string) error {
			return write(ctx, d, path, nil, workspace.WriteOptions{Exclusive: true})
		}
		create := func(path string) error { return write(ctx, d, path, nil, workspace.WriteOptions{}) }
		stat := func(path string) error { _, err := d.Stat(ctx, path); return err }
		lstat := func(path string) error { _, err := d.Lstat(ctx, path); return err }
		open := func(path string) error { _, err := d.Open(ctx, path, workspace.ReadOptions{}); return err }
		list := func(path string) error { _, err := d.ReadDir(ctx, path); return err }
		readlink := func(path string) error { _, err := d.Readlink(ctx, path); return err }
		mkdir := func(path string) error { return d.MkdirAll(ctx, path) }
		remove := func(path string) error { return d.Remove(ctx, path) }
		link := func(path string) error { return d.Symlink(ctx, "x", path) }
		rename := func(to string) func(string) error {
			return func(from string) error { return d.Rename(ctx, from, to) }
		}
		for _, c := range []struct {
			name string
			do   func(string) error
			path string
			want error
		}{
			{"stat missing", stat, "/no", fs.ErrNotExist},
			{"stat below a file", stat, "/file/x", syscall.ENOTDIR},
			{"stat a file with a slash", stat, "/file/", syscall.ENOTDIR},
			{"stat a dangling link", stat, "/dangling", fs.ErrNotExist},
			{"stat a loop", stat, "/loop1", syscall.ELOOP},
			{"lstat a loop", lstat, "/loop1", nil},
			{"lstat a loop with a slash", lstat, "/loop1/", syscall.ELOOP},
			{"a long name", stat, "/" + long, syscall.ENAMETOOLONG},
			{"the longest name", stat, "/" + long[1:], fs.ErrNotExist},
			{"a long path", stat, strings.Repeat("/a", maxPathLen/2+1), syscall.ENAMETOOLONG},
			{"open a directory", open, "/full", syscall.EISDIR},
			{"open a loop", open, "/loop2", syscall.ELOOP},
			{"list a file", list, "/file", syscall.ENOTDIR},
			{"list nothing", list, "/no", fs.ErrNotExist},
			{"readlink of a file", readlink, "/file", syscall.EINVAL},
			{"create over a directory", create, "/full", syscall.EISDIR},
			{"create over a link to one", create, "/tofull", syscall.EISDIR},
			{"create the root", create, "/", syscall.EISDIR},
			{"create with a slash", create, "/new/", syscall.EISDIR},
			{"create below a file", create, "/file/x", syscall.ENOTDIR},
			{"create a long name", create, "/" + long, syscall.ENAMETOOLONG},
			{"create through a link into nowhere", create, "/deepdangling", fs.ErrNotExist},
			{"exclusive over a file", exclusive, "/file", fs.ErrExist},
			{"exclusive over a dangling link", exclusive, "/dangling", fs.ErrExist},
			{"exclusive over a directory", exclusive, "/full", fs.ErrExist},
			{"mkdir over a file", mkdir, "/file", fs.ErrExist},
			{"mkdir below a file", mkdir, "/file/x", syscall.ENOTDIR},
			{"mkdir over a link to a file", mkdir, "/tofile", fs.ErrExist},
			{"mkdir over a dangling link", mkdir, "/dangling", fs.ErrExist},
			{"mkdir below a dangling link", mkdir, "/dangling/x", fs.ErrExist},
			{"mkdir of a link to a directory", mkdir, "/tofull", nil},
			{"mkdir through it", mkdir, "/tofull/a/b", nil},
			{"mkdir again", mkdir, "/tofull/a/b/", nil},
			{"mkdir the root", mkdir, "/", nil},
			{"mkdir a loop", mkdir, "/loop1/x", syscall.ELOOP},
			{"remove nothing", remove, "/no", fs.ErrNotExist},
			{"remove below a file", remove, "/file/x", syscall.ENOTDIR},
			{"remove the root", remove, "/", workspace.ErrInvalid},
			{"remove the root by dots", remove, "/full/..", workspace.ErrInvalid},
			{"remove a link with a slash", remove, "/tofull/", syscall.ENOTDIR},
			{"link over a file", link, "/file", fs.ErrExist},
			{"link over a dangling link", link, "/dangling", fs.ErrExist},
			{"link below nothing", link, "/no/x", fs.ErrNotExist},
			{"rename nothing", rename("/y"), "/no", fs.ErrNotExist},
			{"rename into itself", rename("/full/a/b/c"), "/full", syscall.EINVAL},
			{"rename below itself through a link", rename("/tofull/x"), "/full", syscall.EINVAL},
			{"rename onto a directory above", rename("/full"), "/full/a", syscall.ENOTEMPTY},
			{"rename a file over a directory", rename("/full"), "/file", syscall.EISDIR},
			{"rename a directory over a file", rename("/file"), "/full", syscall.ENOTDIR},
			{"rename a directory over a full one", rename("/full"), "/empty", syscall.ENOTEMPTY},
			{"rename the root", rename("/x"), "/", syscall.EBUSY},
			{"rename to itself", rename("/file"), "/file", nil},
			{"rename into nothing", rename("/no/x"), "/file", fs.ErrNotExist},
			{"rename below a file", rename("/file/x"), "/full", syscall.ENOTDIR},
		} {
			if c.name == "rename a directory over a full one" {
				if err := mkdir("/empty"); err != nil {
					t.Fatal(err)
				}
			}
			err := c.do(c.path)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			var pathErr *fs.PathError
			if err != nil && !strings.HasPrefix(c.name, "rename") && (!errors.As(err, &pathErr) || pathErr.Path != c.path) {
				t.Errorf("%s: %T of another path: %v", c.name, err, err)
			}
		}
		wantFile(t, d, "/file", "x")
		wantFile(t, d, "/full/file", "x")
	})
}

func TestF1_NamesAreAnyBytes(t *testing.T) {
	eachStore(t, func(t *testing.T, d *document) {
		names := []string{" ", "-rf", "a\nb", "a\xffb", "\xff\xfe", "'\"`$(x)", "é", "e\u0301", "A", "a", "\x01", strings.Repeat("x", maxNameLen), "...", "Z%5_", "a b", "a*"}
		for _, name := range names {
			mustWrite(t, d, "/d/"+name, name)
		}
		list, err := d.ReadDir(t.Context(), "/d")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, info := range list {
			got = append(got, info.Name)
			wantFile(t, d, "/d/"+info.Name, info.Name)
		}
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Fatalf("listed %q, want %q", got, names)
		}
	})
}

func TestF4_ListingTellsLinksAndWhatTheyLeadTo(t *testing.T) {
	d := newDocument(t)
	ctx := t.Context()
	mustWrite(t, d, "/d/file", "four")
	for path, target := range map[string]string{"/d/abs": "/d", "/d/dangling": "no", "/d/self": ".", "/d/loop": "loop", "/d/up": "../../../d/file"} {
		if err := d.Symlink(ctx, target, path); err != nil {
			t.Fatal(err)
		}
	}
	list, err := d.ReadDir(ctx, "/d/self/abs/")
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		name, target string
		link, dir    bool
		size         int64
	}
	var got []entry
	for _, i := range list {
		size := i.Size
		if i.IsDir() {
			size = 0
		}
		got = append(got, entry{i.Name, i.Target, i.Link, i.IsDir(), size})
	}
	want := []entry{
		{"abs", "/d", true, true, 0}, {"dangling", "no", true, false, 2}, {"file", "", false, false, 4},
		{"loop", "loop", true, false, 4}, {"self", ".", true, true, 0}, {"up", "../../../d/file", true, false, 4},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	if list[1].Mode.Type() != fs.ModeSymlink || list[3].Mode.Type() != fs.ModeSymlink {
		t.Fatalf("links that lead nowhere have modes %v and %v", list[1].Mode, list[3].Mode)
	}
}

func TestF7_RealPath(t *testing.T) {
	d := newDocument(t)
	ctx := t.Context()
	mustWrite(t, d, "/a/b/file", "x")
	for path, target := range map[string]string{"/l": "a/b", "/a/abs": "/l/file", "/dangling": "no/where", "/loop": "loop", "/a/up": "../.."} {
		if err := d.Symlink(ctx, target, path); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/": "/", "/..": "/", "/../../a/./b//": "/a/b", "/l": "/a/b", "/l/../x": "/a/x", "/a/abs": "/a/b/file",
		"/no/such/../path": "/no/path", "/no/../l": "/a/b", "/dangling/x": "/no/where/x", "/a/up/a": "/a", "/a/b/file/x": "/a/b/file/x",
	} {
		if got, err := d.RealPath(ctx, path); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if _, err := d.RealPath(ctx, "/loop/x"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("loop: %v", err)
	}
}

func TestLinksUpToForty(t *testing.T) {
	d := newDocument(t)
	mustWrite(t, d, "/l0", "end")
	for i := 1; i <= maxLinks+1; i++ {
		if err := d.Symlink(t.Context(), fmt.Sprintf("l%d", i-1), fmt.Sprintf("/l%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wantFile(t, d, fmt.Sprintf("/l%d", maxLinks), "end")
	if _, err := d.Stat(t.Context(), fmt.Sprintf("/l%d", maxLinks+1)); !errors.Is(err, syscall.ELOOP) {
		t.Fatalf("one link more: %v", err)
	}
}
