package conformance

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func pathChecks() []check {
	return []check{
		{name: "F1_NamesHoldAnything", needs: files, run: checkNames},
		{name: "F1_RelativePathsBeginAtWorkingDirectory", needs: files, run: checkRelative},
	}
}

func writeChecks() []check {
	return []check{
		{name: "F2_ContentIsExact", needs: files, run: checkContent},
		{name: "F2_WriteReplacesAll", needs: files, run: checkReplaces},
		{name: "F2_WriteMakesParents", needs: files, run: checkParents},
		{name: "F2_WriteGoesThroughALink", needs: filesAnd(workspace.FeatureSymlink), run: checkWriteLink},
		{name: "F2_NewFileHasItsMode", needs: files, run: checkNewMode},
		{name: "F2_WriteKeepsTheMode", needs: files, run: checkKeepsMode},
		{name: "F2_AbortedWriteLeavesNothing", needs: files, run: checkAbort},
		{name: "F2_NothingShowsBeforeClose", needs: files, run: checkBeforeClose},
	}
}

// oddNames are names of files that a shell, an archive or a listing might
// change.
func oddNames() []string {
	var names []string
	for _, s := range oddStrings() {
		if s != "" && !strings.Contains(s, "/") {
			names = append(names, s)
		}
	}
	return append(names, "...", "..a", ".hidden", "-", "a.", "a ", strings.Repeat("n", 255), strings.Repeat("é", 127), "CON", "a:b", "con\x1bol")
}

func checkNames(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	names := oddNames()
	for _, name := range names {
		if err := ws.WriteFile(ctx, join(dir, name), []byte("file "+name)); err != nil {
			t.Errorf("write %q: %v", name, err)
			continue
		}
		if got, err := ws.ReadFile(ctx, join(dir, name)); err != nil || string(got) != "file "+name {
			t.Errorf("read %q: %q, error %v", name, got, err)
		}
		if info, err := ws.Stat(ctx, join(dir, name)); err != nil || info.Name != name {
			t.Errorf("stat %q: name %q, error %v", name, info.Name, err)
		}
	}
	slices.Sort(names)
	if got := e.names(t, dir); !slices.Equal(got, names) {
		t.Errorf("the listing is %q, want %q", got, names)
	}
	for _, name := range names {
		if err := ws.Remove(ctx, join(dir, name)); err != nil {
			t.Errorf("remove %q: %v", name, err)
		}
		if err := ws.MkdirAll(ctx, join(dir, name)); err != nil {
			t.Errorf("make the directory %q: %v", name, err)
		}
	}
	if got := e.names(t, dir); !slices.Equal(got, names) {
		t.Errorf("the listing of directories is %q, want %q", got, names)
	}
}

// names lists a directory.
func (e *env) names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := e.shared(t).ReadDir(e.context(t), dir)
	if err != nil {
		t.Fatalf("list %q: %v", dir, err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name
	}
	return names
}

// relative makes a path below the working directory relative to it.
func (e *env) relative(name string) string {
	return strings.TrimPrefix(name, strings.TrimSuffix(e.wd, "/")+"/")
}

// wantFile checks a file's content.
func (e *env) wantFile(t testing.TB, what, name, want string) {
	t.Helper()
	got, err := e.shared(t).ReadFile(e.context(t), name)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if string(got) != want {
		t.Errorf("%s: %s", what, difference(got, []byte(want)))
	}
}

// writeFile writes what a check needs.
func (e *env) writeFile(t testing.TB, name, content string) {
	t.Helper()
	if err := e.shared(t).WriteFile(e.context(t), name, []byte(content)); err != nil {
		t.Fatalf("write %q: %v", name, err)
	}
}

func (e *env) mkdir(t testing.TB, name string) {
	t.Helper()
	if err := e.shared(t).MkdirAll(e.context(t), name); err != nil {
		t.Fatalf("make the directory %q: %v", name, err)
	}
}

func (e *env) symlink(t testing.TB, target, name string) {
	t.Helper()
	if err := e.shared(t).Symlink(e.context(t), target, name); err != nil {
		t.Fatalf("link %q to %q: %v", name, target, err)
	}
}

func checkRelative(t testing.TB, e *env) {
	dir := e.dir(t)
	e.mkdir(t, join(dir, "sub"))
	rel := e.relative(dir)
	e.writeFile(t, rel+"/a", "by a relative path")
	e.wantFile(t, "written by a relative path, read by the absolute one", join(dir, "a"), "by a relative path")
	e.writeFile(t, join(dir, "b"), "by an absolute path")
	for _, name := range []string{rel + "/b", "./" + rel + "//b", rel + "/sub/../b", rel + "/./b"} {
		e.wantFile(t, "written by the absolute path, read as "+name, name, "by an absolute path")
	}
	if info, err := e.shared(t).Stat(e.context(t), "."); err != nil || !info.IsDir() {
		t.Errorf("stat of the working directory: %+v, error %v", info, err)
	}
}

func checkContent(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	contents := oddOutputs()
	for _, n := range []int{1, 4095, 4096, 64<<10 - 1, 128<<10 - 1, 128 << 10, 128<<10 + 1, 1<<20 + 7} {
		contents = append(contents, pattern.Bytes(n))
	}
	name := join(dir, "file")
	for _, want := range contents {
		if err := ws.WriteFile(ctx, name, want); err != nil {
			t.Fatalf("write %d bytes: %v", len(want), err)
		}
		got, err := ws.ReadFile(ctx, name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("wrote %d bytes %.20q, read %s, error %v", len(want), want, difference(got, want), err)
		}
		if info, err := ws.Stat(ctx, name); err != nil || info.Size != int64(len(want)) || !info.Mode.IsRegular() {
			t.Errorf("stat of a file of %d bytes: %+v, error %v", len(want), info, err)
		}
	}
	// In pieces, as a stream comes.
	want := pattern.Bytes(300_001)
	w, err := ws.Create(ctx, name, workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(want, 7777) {
		if n, err := w.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("write a piece of %d bytes: %d, error %v", len(piece), n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e.wantFile(t, "written in pieces", name, string(want))
}

func checkReplaces(t testing.TB, e *env) {
	name := join(e.dir(t), "file")
	e.writeFile(t, name, "a long content")
	e.writeFile(t, name, "short")
	e.wantFile(t, "a shorter content over a longer one", name, "short")
	e.writeFile(t, name, "")
	e.wantFile(t, "no content over some", name, "")
}

func checkParents(t testing.TB, e *env) {
	dir := e.dir(t)
	e.writeFile(t, join(dir, "a/b/c/file"), "x")
	e.wantFile(t, "written below missing directories", join(dir, "a/b/c/file"), "x")
	for _, made := range []string{"a", "a/b", "a/b/c"} {
		info, err := e.shared(t).Stat(e.context(t), join(dir, made))
		if err != nil || info.Mode != fs.ModeDir|workspace.DefaultDirMode {
			t.Errorf("the directory %s made by a write: mode %v, error %v, want %v", made, info.Mode, err, fs.ModeDir|workspace.DefaultDirMode)
		}
	}
}

func checkWriteLink(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "target"), "old")
	e.mkdir(t, join(dir, "d"))
	e.symlink(t, "../target", join(dir, "d/relative"))
	e.symlink(t, join(dir, "target"), join(dir, "absolute"))
	e.symlink(t, "absolute", join(dir, "twice"))
	e.symlink(t, "made", join(dir, "dangling"))
	for _, link := range []struct{ name, target string }{{"d/relative", "target"}, {"absolute", "target"}, {"twice", "target"}, {"dangling", "made"}} {
		name := join(dir, link.name)
		e.writeFile(t, name, "through "+link.name)
		e.wantFile(t, "what the link "+link.name+" leads to", join(dir, link.target), "through "+link.name)
		if info, err := ws.Lstat(ctx, name); err != nil || !info.Link {
			t.Errorf("after a write through the link %s it is %v (error %v), want a link still", link.name, info.Mode, err)
		}
	}
}

// wantMode checks a file's permissions.
func (e *env) wantMode(t testing.TB, what, name string, want fs.FileMode) {
	t.Helper()
	info, err := e.shared(t).Stat(e.context(t), name)
	if err != nil || info.Mode != want {
		t.Errorf("%s: mode %v, error %v, want %v", what, info.Mode, err, want)
	}
}

func checkNewMode(t testing.TB, e *env) {
	dir := e.dir(t)
	e.writeFile(t, join(dir, "untold"), "x")
	e.wantMode(t, "a new file", join(dir, "untold"), workspace.DefaultFileMode)
	for _, mode := range []fs.FileMode{0o600, 0o755, 0o640, 0o444, 0o666, 0o777} {
		name := join(dir, "told-"+mode.String())
		if err := write(e.context(t), e.shared(t), name, []byte("x"), workspace.WriteOptions{Mode: mode}); err != nil {
			t.Fatal(err)
		}
		e.wantMode(t, "a new file with a mode of its own", name, mode)
	}
}

func checkKeepsMode(t testing.TB, e *env) {
	ws, ctx := e.shared(t), e.context(t)
	for _, mode := range []fs.FileMode{0o600, 0o755} {
		name := join(e.dir(t), "file")
		if err := write(ctx, ws, name, []byte("x"), workspace.WriteOptions{Mode: mode}); err != nil {
			t.Fatal(err)
		}
		e.writeFile(t, name, "y")
		e.wantMode(t, "a file written again", name, mode)
		if err := write(ctx, ws, name, []byte("z"), workspace.WriteOptions{Mode: 0o640}); err != nil {
			t.Fatal(err)
		}
		e.wantMode(t, "a file written again with another mode", name, mode)
		e.wantFile(t, "a file written again", name, "z")
	}
}

// halfWritten begins a write of more than any buffer holds.
func halfWritten(ctx context.Context, t testing.TB, ws workspace.Workspace, name string) workspace.FileWriter {
	t.Helper()
	w, err := ws.Create(ctx, name, workspace.WriteOptions{})
	if err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	if _, err := w.Write(pattern.Bytes(3 << 20)); err != nil {
		t.Fatalf("write %q: %v", name, err)
	}
	return w
}

func checkAbort(t testing.TB, e *env) {
	ws, dir := e.shared(t), e.dir(t)
	e.writeFile(t, join(dir, "old"), "as it was")
	for _, name := range []string{"new", "old"} {
		if err := halfWritten(e.context(t), t, ws, join(dir, name)).Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
		ctx, cancel := context.WithCancel(e.context(t))
		w := halfWritten(ctx, t, ws, join(dir, name))
		cancel()
		err := w.Close()
		if err == nil {
			t.Errorf("a write whose context was cancelled was closed with success")
		} else {
			wantError(t, "close of a cancelled write", err, context.Canceled)
		}
	}
	e.wantFile(t, "a file whose writes were aborted", join(dir, "old"), "as it was")
	e.eventually(t, "what aborted writes had written is gone", func() bool { return slices.Equal(e.names(t, dir), []string{"old"}) })
}

func checkBeforeClose(t testing.TB, e *env) {
	ws, dir := e.shared(t), e.dir(t)
	name := join(dir, "file")
	e.writeFile(t, name, "as it was")
	w := halfWritten(e.context(t), t, ws, name)
	fresh := halfWritten(e.context(t), t, ws, join(dir, "fresh"))
	pause(e.opts.limits.settle)
	e.wantFile(t, "a file that is being written", name, "as it was")
	if _, err := ws.Stat(e.context(t), join(dir, "fresh")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a new file that is being written: error %v, want %v", err, fs.ErrNotExist)
	}
	if err := errors.Join(w.Close(), fresh.Close()); err != nil {
		t.Fatal(err)
	}
	e.wantFile(t, "a file that was written", name, string(pattern.Bytes(3<<20)))
	e.wantFile(t, "a new file that was written", join(dir, "fresh"), string(pattern.Bytes(3<<20)))
	if got := e.names(t, dir); !slices.Equal(got, []string{"file", "fresh"}) {
		t.Errorf("the listing is %q, want only what was written", got)
	}
}
