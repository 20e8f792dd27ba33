package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/berth-dev/berth/shared/workspace"
)

func infoChecks() []check {
	links := filesAnd(workspace.FeatureSymlink)
	return []check{
		{name: "F4_StatFollowsAndLstatDoesNot", needs: links, run: checkStatLink},
		{name: "F4_ListingTellsLinksAndWhereTheyLead", needs: links, run: checkListLinks},
	}
}

func listChecks() []check {
	return []check{
		{name: "F4_ListingIsCompleteAndSorted", needs: files, run: checkSorted},
		{name: "F4_ListingTellsWhatStatTells", needs: files, run: checkListInfo},
		{name: "F4_AWalkEnds", needs: filesAnd(workspace.FeatureSymlink), run: checkWalk},
		{name: "F4_FSIsAnFS", needs: files, run: checkFS},
		{name: "F4_RemovalFollowsNoLink", needs: filesAnd(workspace.FeatureSymlink), run: checkRemoveLinks},
	}
}

func checkStatLink(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "file"), "12345")
	e.mkdir(t, join(dir, "d"))
	for target, want := range map[string]fs.FileMode{"file": 0, "d": fs.ModeDir, "missing": fs.ModeSymlink} {
		name := join(dir, "to-"+target)
		e.symlink(t, target, name)
		l, err := ws.Lstat(ctx, name)
		if err != nil || l.Name != "to-"+target || l.Mode.Type() != fs.ModeSymlink || !l.Link || l.Target != target || l.Size != int64(len(target)) {
			t.Errorf("lstat of a link to %s: %+v, error %v, want the link itself", target, l, err)
		}
		s, err := ws.Stat(ctx, name)
		if target == "missing" {
			wantPathError(t, "stat of a dangling link", err, name, fs.ErrNotExist)
			continue
		}
		if err != nil || s.Name != "to-"+target || s.Mode.Type() != want || !s.Link || s.Target != target || s.IsDir() != want.IsDir() {
			t.Errorf("stat of a link to %s: %+v, error %v, want what it leads to, and the link told", target, s, err)
		}
	}
	if s, err := ws.Stat(ctx, join(dir, "to-file")); err != nil || s.Size != 5 {
		t.Errorf("stat of a link to a file of 5 bytes: size %d, error %v", s.Size, err)
	}
	for _, name := range []string{"file", "d"} {
		l, err := ws.Lstat(ctx, join(dir, name))
		if s, err2 := ws.Stat(ctx, join(dir, name)); err != nil || err2 != nil || l.Link || s.Link || l.Target != "" || l.Mode != s.Mode {
			t.Errorf("%s, which is no link: lstat %+v (error %v), stat %+v (error %v)", name, l, err, s, err2)
		}
	}
}

func checkListLinks(t testing.TB, e *env) {
	dir := e.dir(t)
	e.writeFile(t, join(dir, "file"), "12345")
	e.mkdir(t, join(dir, "d"))
	links := map[string]string{"to-file": "file", "to-d": join(dir, "d"), "dangling": "no\xffwhere", "loop": "loop", "loop-a": "loop-b", "loop-b": "loop-a", "up": "..", "to-to-d": "to-d"}
	for name, target := range links {
		e.symlink(t, target, join(dir, name))
	}
	entries, err := e.shared(t).ReadDir(e.context(t), dir)
	if err != nil {
		t.Fatalf("list a directory with links: %v", err)
	}
	if len(entries) != len(links)+2 {
		t.Errorf("%d entries, want %d", len(entries), len(links)+2)
	}
	e.writeFile(t, join(join(dir, "d"), "inside"), "")
	if got := e.names(t, join(dir, "to-to-d")); !slices.Equal(got, []string{"inside"}) {
		t.Errorf("a link to a directory of one file lists %q", got)
	}
	for _, i := range entries {
		target, link := links[i.Name]
		if i.Link != link || i.Target != target {
			t.Errorf("%s: a link: %v, to %q, want %v, to %q", i.Name, i.Link, i.Target, link, target)
		}
		if want := slices.Contains([]string{"d", "to-d", "to-to-d", "up"}, i.Name); i.IsDir() != want {
			t.Errorf("%s leads to a directory: %v, want %v", i.Name, i.IsDir(), want)
		}
		if unreachable := strings.HasPrefix(i.Name, "loop") || i.Name == "dangling"; unreachable != (i.Mode.Type() == fs.ModeSymlink) {
			t.Errorf("%s: mode %v; a link that leads nowhere keeps its type, another one does not", i.Name, i.Mode)
		}
	}
}

// manyNames is more than fits into one message of a listing.
const manyNames = 500

func checkSorted(t testing.TB, e *env) {
	dir := e.dir(t)
	want := []string{"a", "B", "a.b", "a-b", "a b", ".hidden", "..two", "aa", "ab", "A", "_", "Z", "z", "é", "\xff", "~", "10", "9", "a0"}
	for i := range manyNames {
		want = append(want, fmt.Sprintf("n%d", i))
	}
	e.makeAll(t, dir, want)
	slices.Sort(want)
	if got := e.names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the listing has %d names, want %d, sorted byte by byte: %.300q", len(got), len(want), got)
	}
	empty := join(e.dir(t), "empty")
	e.mkdir(t, empty)
	if got := e.names(t, empty); len(got) != 0 {
		t.Errorf("an empty directory lists %q", got)
	}
}

// makersAtOnce is how many make those names: where each takes long, they take less
// together.
const makersAtOnce = 4

// makeAll makes empty files, and directories among them.
func (e *env) makeAll(t testing.TB, dir string, names []string) {
	t.Helper()
	ws, ctx := e.shared(t), e.context(t)
	errs := make([]error, makersAtOnce)
	var wg sync.WaitGroup
	for first := range errs {
		wg.Go(func() {
			for i := first; i < len(names) && errs[first] == nil; i += makersAtOnce {
				if i%5 == 1 {
					errs[first] = ws.MkdirAll(ctx, join(dir, names[i]))
				} else {
					errs[first] = ws.WriteFile(ctx, join(dir, names[i]), nil)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("make %d names: %v", len(names), err)
	}
}

func checkListInfo(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.mkdir(t, join(dir, "d"))
	for i, mode := range []fs.FileMode{0o644, 0o600, 0o755} {
		if err := write(ctx, ws, join(dir, fmt.Sprintf("f%d", i)), make([]byte, i*1000), workspace.WriteOptions{Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := ws.ReadDir(ctx, dir)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%d entries, error %v, want 4", len(entries), err)
	}
	for _, i := range entries {
		s, err := ws.Stat(ctx, join(dir, i.Name))
		if err != nil {
			t.Fatal(err)
		}
		if i.Size != s.Size || i.Mode != s.Mode || !i.ModTime.Equal(s.ModTime) {
			t.Errorf("the listing tells %+v, stat %+v", i, s)
		}
	}
	if i := entries[3]; i.Size != 2000 || i.Mode != 0o755 {
		t.Errorf("the listing tells %+v of a file of 2000 bytes with mode 0755", i)
	}
}

// mostWalked is more than a walk that follows no link finds.
const mostWalked = 100

func checkWalk(t testing.TB, e *env) {
	dir := e.dir(t)
	e.mkdir(t, join(dir, "d/e"))
	e.writeFile(t, join(dir, "d/e/file"), "x")
	e.symlink(t, "..", join(dir, "d/up"))
	e.symlink(t, dir, join(dir, "self"))
	e.symlink(t, "missing", join(dir, "dangling"))
	root := e.relative(dir)
	var got []string
	err := fs.WalkDir(e.shared(t).FS(e.context(t)), root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if len(got) > mostWalked {
			return errors.New("the walk followed a link to itself")
		}
		kind := ""
		if d.Type() == fs.ModeSymlink {
			kind = "@"
		}
		got = append(got, strings.TrimPrefix(name, root)+kind)
		return nil
	})
	want := []string{"", "/d", "/d/e", "/d/e/file", "/d/up@", "/dangling@", "/self@"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the walk found %q, error %v, want %q, links as links", got, err, want)
	}
}

func checkFS(t testing.TB, e *env) {
	dir := e.dir(t)
	for _, name := range []string{"a", "b/c", "b/d/e"} {
		e.writeFile(t, join(dir, name), "content of "+name)
	}
	fsys, err := fs.Sub(e.shared(t).FS(e.context(t)), e.relative(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(fsys, "a", "b/c", "b/d/e"); err != nil {
		t.Error(err)
	}
}

func checkRemoveLinks(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "kept/file"), "kept")
	e.mkdir(t, join(dir, "tree/d"))
	e.symlink(t, join(dir, "kept"), join(dir, "tree/to-directory"))
	e.symlink(t, "../../kept/file", join(dir, "tree/d/to-file"))
	e.symlink(t, "tree", join(dir, "tree/self"))
	if err := ws.Remove(ctx, join(dir, "tree")); err != nil {
		t.Errorf("remove a tree with links: %v", err)
	}
	if got := e.names(t, dir); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("left are %q, want only what links in the tree led to", got)
	}
	e.wantFile(t, "what links in a removed tree led to", join(dir, "kept/file"), "kept")
}
