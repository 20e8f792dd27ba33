package conformance

import (
	"io/fs"
	"path"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func treeChecks() []check {
	return []check{
		{name: "F5_MkdirAllMakesParents", needs: files, run: checkMkdir},
		{name: "F5_MkdirAllIsIdempotent", needs: files, run: checkMkdirAgain},
		{name: "F5_OverAFileIsErrExist", needs: files, run: checkMkdirOver},
		{name: "F5_BelowAFileIsENOTDIR", needs: files, run: checkMkdirBelow},
		{name: "F6_RemoveTakesFilesAndTrees", needs: files, run: checkRemove},
		{name: "F6_RemoveTakesTheLinkItself", needs: filesAnd(workspace.FeatureSymlink), run: checkRemoveLink},
		{name: "F6_RemoveOfMissingIsNotExist", needs: files, run: checkRemoveMissing},
		{name: "F6_RemoveAllOfMissingIsNil", needs: files, run: checkRemoveAll},
		{name: "F6_WorkingDirectoryIsRefused", needs: files, run: checkRemoveWorkingDir},
	}
}

func realPathChecks() []check {
	links := filesAnd(workspace.FeatureSymlink)
	return []check{
		{name: "F7_KeepsMissingNames", needs: files, run: checkRealMissing},
		{name: "F7_FollowsLinks", needs: links, run: checkRealLinks},
		{name: "F7_LoopIsAnError", needs: links, run: checkRealLoop},
	}
}

func checkMkdir(t testing.TB, e *env) {
	name := join(e.dir(t), "a/b/c")
	e.mkdir(t, name)
	for _, made := range []string{name, path.Dir(name), path.Dir(path.Dir(name))} {
		e.wantMode(t, "a directory made by MkdirAll", made, fs.ModeDir|workspace.DefaultDirMode)
	}
}

func checkMkdirAgain(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "a/file"), "x")
	names := []string{join(dir, "a"), dir, ".", "/"}
	if e.features.Has(workspace.FeatureSymlink) {
		e.symlink(t, "a", join(dir, "link"))
		names = append(names, join(dir, "link"))
	}
	for _, name := range names {
		if err := ws.MkdirAll(ctx, name); err != nil {
			t.Errorf("MkdirAll of %s, a directory already: %v", name, err)
		}
	}
	e.wantFile(t, "a file in a directory made again", join(dir, "a/file"), "x")
}

func checkMkdirOver(t testing.TB, e *env) {
	name := join(e.dir(t), "file")
	e.writeFile(t, name, "x")
	wantPathError(t, "MkdirAll over a file", e.shared(t).MkdirAll(e.context(t), name), name, fs.ErrExist)
	e.wantFile(t, "the file", name, "x")
}

func checkMkdirBelow(t testing.TB, e *env) {
	dir := e.dir(t)
	e.writeFile(t, join(dir, "file"), "x")
	for _, name := range []string{join(dir, "file/d"), join(dir, "file/d/e")} {
		wantPathError(t, "MkdirAll below a file", e.shared(t).MkdirAll(e.context(t), name), name, syscall.ENOTDIR)
	}
}

func checkRemove(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "file"), "x")
	e.mkdir(t, join(dir, "empty"))
	for _, name := range []string{"tree/a", "tree/b/c", "tree/b/.d/e", "kept"} {
		e.writeFile(t, join(dir, name), "x")
	}
	for _, name := range []string{"file", "empty", "tree"} {
		if err := ws.Remove(ctx, join(dir, name)); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if got := e.names(t, dir); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("left are %q, want only kept", got)
	}
}

func checkRemoveLink(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "d/file"), "x")
	for link, target := range map[string]string{"to-d": "d", "to-file": "d/file", "dangling": "missing", "loop": "loop"} {
		e.symlink(t, target, join(dir, link))
		if err := ws.Remove(ctx, join(dir, link)); err != nil {
			t.Errorf("remove the link %s: %v", link, err)
		}
	}
	if got := e.names(t, dir); !slices.Equal(got, []string{"d"}) {
		t.Errorf("left are %q, want only d", got)
	}
	e.wantFile(t, "what removed links led to", join(dir, "d/file"), "x")
}

func checkRemoveMissing(t testing.TB, e *env) {
	name := join(e.dir(t), "missing")
	wantPathError(t, "remove a missing file", e.shared(t).Remove(e.context(t), name), name, fs.ErrNotExist)
}

func checkRemoveAll(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "tree/file"), "x")
	for _, name := range []string{join(dir, "tree"), join(dir, "tree"), join(dir, "missing/below")} {
		if err := ws.RemoveAll(ctx, name); err != nil {
			t.Errorf("RemoveAll of %s: %v", name, err)
		}
	}
	if got := e.names(t, dir); len(got) != 0 {
		t.Errorf("left are %q, want nothing", got)
	}
}

// checkRemoveWorkingDir goes upwards only when the level below was refused: a
// provider that removes what it is told must not be told to remove a machine.
func checkRemoveWorkingDir(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.writeFile(t, join(dir, "file"), "x")
	names := []string{".", "./", e.wd, e.relative(dir) + "/..", dir + "/../."}
	if e.wd != "/" {
		names = append(names, "..", path.Dir(e.wd))
	}
	for _, name := range names {
		for what, remove := range map[string]func() error{
			"Remove":    func() error { return ws.Remove(ctx, name) },
			"RemoveAll": func() error { return ws.RemoveAll(ctx, name) },
		} {
			err := remove()
			wantPathError(t, what+" of "+name+", the working directory or above", err, name, workspace.ErrInvalid)
			if t.Failed() {
				return
			}
		}
	}
	e.wantFile(t, "a file in the working directory", join(dir, "file"), "x")
}

// real checks one resolution.
func (e *env) real(t testing.TB, name, want string) {
	t.Helper()
	if got, err := e.shared(t).RealPath(e.context(t), name); err != nil || got != want {
		t.Errorf("RealPath of %q: %q, error %v, want %q", name, got, err, want)
	}
}

func checkRealMissing(t testing.TB, e *env) {
	dir := e.dir(t)
	e.mkdir(t, join(dir, "a"))
	rel := e.relative(dir)
	e.real(t, ".", e.wd)
	e.real(t, rel, dir)
	e.real(t, rel+"/a/../a//./", join(dir, "a"))
	e.real(t, join(dir, "missing"), join(dir, "missing"))
	e.real(t, rel+"/missing/deeper/../x\xff", join(dir, "missing/x\xff"))
	e.real(t, "/..", "/")
}

func checkRealLinks(t testing.TB, e *env) {
	dir := e.dir(t)
	e.mkdir(t, join(dir, "a/b"))
	e.symlink(t, "a/b", join(dir, "link"))
	e.symlink(t, join(dir, "link"), join(dir, "twice"))
	e.symlink(t, "missing/x", join(dir, "dangling"))
	e.real(t, join(dir, "link"), join(dir, "a/b"))
	e.real(t, join(dir, "twice/c"), join(dir, "a/b/c"))
	e.real(t, join(dir, "link/.."), join(dir, "a")) // as the kernel, not as text
	e.real(t, join(dir, "dangling/y"), join(dir, "missing/x/y"))
}

func checkRealLoop(t testing.TB, e *env) {
	dir := e.dir(t)
	e.symlink(t, "b/x", join(dir, "a"))
	e.symlink(t, "a", join(dir, "b"))
	for _, name := range []string{join(dir, "a"), join(dir, "b/c")} {
		began := time.Now()
		_, err := e.shared(t).RealPath(e.context(t), name)
		wantPathError(t, "RealPath of a loop", err, name, syscall.ELOOP)
		if took := time.Since(began); took > e.opts.limits.slack {
			t.Errorf("RealPath of a loop took %v", took)
		}
	}
}
