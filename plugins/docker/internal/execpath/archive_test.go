//go:build docker

package execpath_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// fill unpacks entries in a directory of the container, past the workspace.
func (b *bench) fill(t *testing.T, dir string, entries ...tar.Header) {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, entry := range entries {
		content := []byte("content of " + entry.Name)
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(content))
		}
		entry.Format = tar.FormatPAX
		if err := w.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Typeflag == tar.TypeReg {
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := b.engine.Change(t.Context(), "unpacking", func(ctx context.Context, c *client.Client) error {
		return errors.Join(w.Close(), c.CopyToContainer(ctx, b.id, dir, &packed, container.CopyToContainerOptions{}))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// owner is whose a file is, as the engine's archive of it says.
func (b *bench) owner(t *testing.T, abs string) (uid, gid int) {
	t.Helper()
	err := b.engine.Query(t.Context(), "looking", func(ctx context.Context, c *client.Client) error {
		body, _, err := c.CopyFromContainer(ctx, b.id, abs)
		if err != nil {
			return err
		}
		defer body.Close()
		header, err := tar.NewReader(body).Next()
		if err == nil {
			uid, gid = header.Uid, header.Gid
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

func (b *bench) read(t *testing.T, name string, opts workspace.ReadOptions) string {
	t.Helper()
	r, err := b.ws.Open(t.Context(), name, opts)
	if err != nil {
		t.Errorf("open %q: %v", name, err)
		return ""
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Errorf("read %q: %v", name, err)
	}
	return string(content)
}

func (b *bench) write(t *testing.T, name, content string, opts workspace.WriteOptions) error {
	t.Helper()
	w, err := b.ws.Create(t.Context(), name, opts)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, content)
	return errors.Join(err, w.Close())
}

// listed is a directory in one line for each entry.
func (b *bench) listed(t *testing.T, name string) []string {
	t.Helper()
	entries, err := b.ws.ReadDir(t.Context(), name)
	if err != nil {
		t.Errorf("list %q: %v", name, err)
	}
	var lines []string
	for _, e := range entries {
		line := fmt.Sprintf("%q %v %d", e.Name, e.Mode, e.Size)
		if e.Link {
			line += fmt.Sprintf(" -> %q", e.Target)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestF4_WithoutAShellEveryKindIsListed has what only an archive can have made there:
// links, several names of one file, names of any bytes, what is no file.
func TestF4_WithoutAShellEveryKindIsListed(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "scratch"})
	b.fill(t, workDir,
		tar.Header{Typeflag: tar.TypeDir, Name: "a\xfe/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "a\xfe/deep\xff", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeReg, Name: "file\xff", Mode: 0o640},
		tar.Header{Typeflag: tar.TypeReg, Name: "file\ufffd", Mode: 0o644},
		tar.Header{Typeflag: tar.TypeLink, Name: "other\xfd", Linkname: "a\xfe/deep\xff"},
		tar.Header{Typeflag: tar.TypeLink, Name: "second", Linkname: "file\xff"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "link\xff", Linkname: "file\xff", Mode: 0o777},
		tar.Header{Typeflag: tar.TypeLink, Name: "link-again\xff", Linkname: "link\xff"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "to-dir", Linkname: workDir + "/a\xfe", Mode: 0o777},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "dangling", Linkname: "no\xffwhere", Mode: 0o777},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "loop", Linkname: "loop", Mode: 0o777},
		tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o644},
	)
	want := []string{
		`"a\xfe" drwxr-xr-x 0`,
		`"dangling" Lrwxrwxrwx 8 -> "no\xffwhere"`,
		`"fifo" prw-r--r-- 0`,
		`"file�" -rw-r--r-- 18`,
		`"file\xff" -rw-r----- 16`,
		`"link-again\xff" -rw-r----- 16 -> "file\xff"`,
		`"link\xff" -rw-r----- 16 -> "file\xff"`,
		`"loop" Lrwxrwxrwx 4 -> "loop"`,
		`"other\xfd" -rw------- 19`,
		`"second" -rw-r----- 16`,
		`"to-dir" drwxr-xr-x 0 -> "/workspace/a\xfe"`,
	}
	if got := b.listed(t, "."); !slices.Equal(got, want) {
		t.Errorf("the listing is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, want := range map[string]string{
		"file\xff":        "content of file\xff",
		"file\ufffd":      "content of file\ufffd", // for which engines take the other
		"second":          "content of file\xff",
		"link\xff":        "content of file\xff",
		"link-again\xff":  "content of file\xff",
		"a\xfe/deep\xff":  "content of a\xfe/deep\xff",
		"to-dir/deep\xff": "content of a\xfe/deep\xff",
		"other\xfd":       "content of a\xfe/deep\xff",
	} {
		if got := b.read(t, name, workspace.ReadOptions{}); got != want {
			t.Errorf("%q holds %q, want %q", name, got, want)
		}
	}
	if got := b.read(t, "other\xfd", workspace.ReadOptions{Offset: 11, Length: 3}); got != "a\xfe/" {
		t.Errorf("a part of it is %q", got)
	}
	if got := b.listed(t, "to-dir"); !slices.Equal(got, []string{`"deep\xff" -rw------- 19`}) {
		t.Errorf("a link to a directory lists %q", got)
	}
	for name, want := range map[string]error{"fifo": workspace.ErrInvalid, "loop": syscall.ELOOP, "dangling": fs.ErrNotExist, "to-dir": syscall.EISDIR, "second/x": syscall.ENOTDIR} {
		if _, err := b.ws.Open(t.Context(), name, workspace.ReadOptions{}); !errors.Is(err, want) {
			t.Errorf("open %q: %v, want %v", name, err, want)
		}
	}
	if got, err := b.ws.RealPath(t.Context(), "to-dir/../link\xff"); err != nil || got != workDir+"/file\xff" {
		t.Errorf("the real path is %q, error %v", got, err)
	}
	// What is removed is the link itself, and never what it leads to.
	for _, name := range []string{"to-dir", "loop", "link\xff", "file\xff", "fifo"} {
		if err := b.ws.Remove(t.Context(), name); err != nil {
			t.Errorf("remove %q: %v", name, err)
		}
		if _, err := b.ws.Lstat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q after its removal: %v", name, err)
		}
	}
	if got := b.read(t, "second", workspace.ReadOptions{}) + b.read(t, "a\xfe/deep\xff", workspace.ReadOptions{}); got != "content of file\xffcontent of a\xfe/deep\xff" {
		t.Errorf("what is left holds %q", got)
	}
	if err := b.ws.Remove(t.Context(), "a\xfe"); err != nil {
		t.Errorf("remove a tree: %v", err)
	}
	want = []string{`"dangling" Lrwxrwxrwx 8 -> "no\xffwhere"`, `"file�" -rw-r--r-- 18`, `"link-again\xff" Lrwxrwxrwx 5 -> "file\xff"`, `"other\xfd" -rw------- 19`, `"second" -rw-r----- 16`}
	if got := b.listed(t, "."); !slices.Equal(got, want) {
		t.Errorf("in the end the listing is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestF2_WithoutAShellModeAndOwnerAreKept writes to files of several owners, one of
// them through a link.
func TestF2_WithoutAShellModeAndOwnerAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "scratch", user: "1000"})
	b.fill(t, workDir,
		tar.Header{Typeflag: tar.TypeReg, Name: "theirs\xff", Mode: 0o4750, Uid: 12, Gid: 34},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "theirs\xff", Mode: 0o777},
	)
	for _, name := range []string{"link", "new/er/file"} {
		if err := b.write(t, name, "written", workspace.WriteOptions{Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t, name, workspace.ReadOptions{}); got != "written" {
			t.Errorf("%s holds %q", name, got)
		}
	}
	want := []string{`"link" -rwxr-x--- 7 -> "theirs\xff"`, `"new" drwxr-xr-x 0`, `"theirs\xff" -rwxr-x--- 7`}
	if got := b.listed(t, "."); !slices.Equal(got, want) {
		t.Errorf("the listing is %q, want %q", got, want)
	}
	if got := b.listed(t, "new/er"); !slices.Equal(got, []string{`"file" -rw------- 7`}) {
		t.Errorf("the listing is %q", got)
	}
	for name, want := range map[string]int{"new": 1000, "new/er": 1000, "new/er/file": 1000} {
		if uid, gid := b.owner(t, workDir+"/"+name); uid != want || gid != want {
			t.Errorf("%s is of %d:%d, want %d", name, uid, gid, want)
		}
	}
	if err := b.ws.Remove(t.Context(), "link"); err != nil {
		t.Fatal(err)
	}
	// By a second name, which is UTF-8, the engine's own archive tells.
	b.fill(t, workDir, tar.Header{Typeflag: tar.TypeLink, Name: "theirs", Linkname: "theirs\xff", Mode: 0o4750, Uid: 12, Gid: 34})
	if uid, gid := b.owner(t, workDir+"/theirs"); uid != 12 || gid != 34 {
		t.Errorf("the existing file is of %d:%d, want 12:34", uid, gid)
	}
}

// TestF2_WithoutAShellAFullDiskLeavesTheOldFile writes more than the volume takes.
func TestF2_WithoutAShellAFullDiskLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "scratch", volumeSize: "1m"})
	if err := b.write(t, "file", "as it was", workspace.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "new"} {
		if err := b.write(t, name, strings.Repeat("x", 2<<20), workspace.WriteOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("writing more than there is room for: %v, want %v", err, syscall.ENOSPC)
		}
	}
	if got := b.read(t, "file", workspace.ReadOptions{}); got != "as it was" {
		t.Errorf("the file holds %.20q after a write that failed", got)
	}
	if got := b.listed(t, "."); !slices.Equal(got, []string{`"file" -rw-r--r-- 9`}) {
		t.Errorf("the listing is %q, want the file alone", got)
	}
}

// TestWithoutAShellWhatCannotBeIsSaid holds the limits to the declared ones.
func TestWithoutAShellWhatCannotBeIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "scratch", tmpfs: map[string]string{"/run": "", workDir + "/memory": ""}, readOnly: true})
	ctx := t.Context()
	for what, do := range map[string]func() error{
		"a command":               func() error { _, err := b.ws.Start(ctx, sdk.Command{Args: []string{"/probe"}}); return err },
		"a rename":                func() error { return b.ws.Rename(ctx, "a", "b") },
		"a link":                  func() error { return b.ws.Symlink(ctx, "a", "b") },
		"a new mode":              func() error { return b.ws.Chmod(ctx, "a", 0o600) },
		"an addition":             func() error { return b.write(t, "a", "", workspace.WriteOptions{Append: true}) },
		"a write to memory":       func() error { return b.write(t, "/run/a", "", workspace.WriteOptions{}) },
		"a folder in memory":      func() error { return b.ws.MkdirAll(ctx, "memory/a/b") },
		"a listing of memory":     func() error { _, err := b.ws.ReadDir(ctx, "memory"); return err },
		"a listing of processes":  func() error { _, err := b.ws.ReadDir(ctx, "/proc"); return err },
		"a file of the processes": func() error { _, err := b.ws.Stat(ctx, "/proc/1/environ"); return err },
	} {
		if err := do(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "shell") {
			t.Errorf("%s: %v, want %v and what would help", what, err, errors.ErrUnsupported)
		}
	}
	for name, want := range map[string]error{"memory": syscall.EBUSY, "/run": syscall.EBUSY, "/dev/pts": errors.ErrUnsupported, "/probe": syscall.EROFS} {
		if err := b.ws.Remove(ctx, name); !errors.Is(err, want) {
			t.Errorf("remove %s: %v, want %v", name, err, want)
		}
	}
	if err := b.write(t, "/file", "x", workspace.WriteOptions{}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a write to the read-only root: %v, want %v", err, syscall.EROFS)
	}
	if _, err := b.ws.Stat(ctx, "/probe"); err != nil {
		t.Errorf("the root is read: %v", err)
	}
	if err := b.write(t, "file", "x", workspace.WriteOptions{}); err != nil {
		t.Errorf("a write to the volume: %v", err)
	}
	if err := b.ws.Remove(ctx, "file"); err != nil {
		t.Errorf("a removal in the volume: %v", err)
	}
}
