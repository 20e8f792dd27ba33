package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func togetherChecks() []check {
	return []check{
		{name: "F9_CommandsSeeWhatWasWritten", needs: both, run: checkCommandSees},
		{name: "F9_FilesSeeWhatCommandsDid", needs: both, run: checkFilesSee},
		{name: "F9_BothAreTheSameUser", needs: both, run: checkSameUser},
	}
}

func optionalChecks() []check {
	return []check{
		{name: "F10_Rename", needs: filesAnd(workspace.FeatureRename), run: checkRename},
		{name: "F10_SymlinkAndReadlink", needs: filesAnd(workspace.FeatureSymlink), run: checkSymlink},
		{name: "F10_Chmod", needs: filesAnd(workspace.FeatureChmod), run: checkChmod},
		{name: "F10_Chtimes", needs: filesAnd(workspace.FeatureChtimes), run: checkChtimes},
		{name: "F10_ExclusiveCreate", needs: filesAnd(workspace.FeatureExclusive), run: checkExclusive},
		{name: "F10_Append", needs: filesAnd(workspace.FeatureAppend), run: checkAppend},
		{name: "F10_AbsentFeaturesAreUnsupported", run: checkUnsupported},
	}
}

func checkCommandSees(t testing.TB, e *env) {
	dir := e.dir(t)
	name := join(dir, "file")
	for i := range 20 {
		want := fmt.Sprintf("content %d\xff", i)
		e.writeFile(t, name, want)
		if got := e.output(t, "show", name); got != want {
			t.Errorf("wrote %q, and a command reads %q", want, got)
		}
	}
	if err := e.shared(t).Remove(e.context(t), name); err != nil {
		t.Fatal(err)
	}
	if e.exists(t, name) {
		t.Error("removed, and a command still sees it")
	}
	if !e.exists(t, dir) {
		t.Error("a command does not see a directory that was made")
	}
	// Below a tmpfs too, which an archive would miss (moby#22020).
	if info, err := e.shared(t).Stat(e.context(t), "/tmp"); err == nil && info.IsDir() {
		name := "/tmp/" + newName()
		e.writeFile(t, name, "x")
		if got := e.output(t, "show", name); got != "x" {
			t.Errorf("wrote x below /tmp, and a command reads %q", got)
		}
		if err := e.shared(t).Remove(e.context(t), name); err != nil {
			t.Error(err)
		}
	}
}

func checkFilesSee(t testing.TB, e *env) {
	dir := e.dir(t)
	name := join(dir, "file\xff")
	for i := range 20 {
		want := fmt.Sprintf("content %d\xff", i)
		e.output(t, "write", name, hexOf([]byte(want)))
		e.wantFile(t, "written by a command", name, want)
	}
	if got := e.names(t, dir); !slices.Equal(got, []string{"file\xff"}) {
		t.Errorf("the listing is %q, want what the command wrote", got)
	}
}

func checkSameUser(t testing.TB, e *env) {
	name := join(e.dir(t), "file")
	e.writeFile(t, name, "x")
	var owner, user int
	if _, err := fmt.Sscan(e.output(t, "owner", name), &owner, &user); err != nil {
		t.Fatal(err)
	}
	if owner != user {
		t.Errorf("a written file belongs to user %d, commands run as user %d", owner, user)
	}
}

func checkRename(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	at := func(name string) string { return join(dir, name) }
	e.writeFile(t, at("a"), "a")
	e.writeFile(t, at("b"), "b")
	e.writeFile(t, at("d/x"), "x")
	e.writeFile(t, at("full/y"), "y")
	e.mkdir(t, at("empty"))
	for _, r := range [][2]string{{"a", "new\xff"}, {"new\xff", "b"}, {"d", "e"}} {
		if err := ws.Rename(ctx, at(r[0]), at(r[1])); err != nil {
			t.Errorf("rename %q to %q: %v", r[0], r[1], err)
		}
	}
	e.wantFile(t, "renamed over a file", at("b"), "a")
	e.wantFile(t, "in a renamed directory", at("e/x"), "x")
	if got := e.names(t, dir); !slices.Equal(got, []string{"b", "e", "empty", "full"}) {
		t.Errorf("left are %q", got)
	}
	for _, r := range []struct {
		from, to string
		kinds    []error
	}{
		{"missing", "other", []error{fs.ErrNotExist}},
		{"b", "missing/other", []error{fs.ErrNotExist}},
		{"empty", "full", []error{fs.ErrExist}},
		{"empty", "b", []error{syscall.ENOTDIR, fs.ErrExist}},
		{"b", "full", []error{fs.ErrExist, syscall.EISDIR}},
		{"full", "full/inside", []error{syscall.EINVAL, workspace.ErrInvalid}},
	} {
		err := ws.Rename(ctx, at(r.from), at(r.to))
		wantPathError(t, "rename "+r.from+" to "+r.to, err, at(r.from), r.kinds...)
	}
	if e.features.Has(workspace.FeatureSymlink) {
		e.symlink(t, "b", at("link"))
		if err := ws.Rename(ctx, at("link"), at("moved")); err != nil {
			t.Error(err)
		}
		if target, err := ws.Readlink(ctx, at("moved")); err != nil || target != "b" {
			t.Errorf("a renamed link holds %q, error %v, want the link itself renamed", target, err)
		}
	}
}

func checkSymlink(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	for i, target := range []string{"x", "/a/b", "../..", "no\xffwhere", "a\nb", " ", "./x/../y//z", "$(id)"} {
		name := join(dir, fmt.Sprintf("link%d", i))
		e.symlink(t, target, name)
		if got, err := ws.Readlink(ctx, name); err != nil || got != target {
			t.Errorf("a link made to %q holds %q, error %v", target, got, err)
		}
	}
	e.writeFile(t, join(dir, "file"), "content")
	for _, name := range []string{join(dir, "file"), join(dir, "link0"), dir} {
		wantPathError(t, "link over something", ws.Symlink(ctx, "x", name), name, fs.ErrExist)
	}
	name := join(dir, "missing/link")
	wantPathError(t, "link in a missing directory", ws.Symlink(ctx, "x", name), name, fs.ErrNotExist)
	e.wantFile(t, "a file that a link could not replace", join(dir, "file"), "content")
	_, err := ws.Readlink(ctx, join(dir, "file"))
	wantPathError(t, "Readlink of a file", err, join(dir, "file"), syscall.EINVAL)
	e.symlink(t, "file", join(dir, "good"))
	e.wantFile(t, "read through a link", join(dir, "good"), "content")
}

func checkChmod(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	name := join(dir, "file")
	e.writeFile(t, name, "x")
	for _, mode := range []fs.FileMode{0o755, 0o600, 0o777, 0o400, 0o644} {
		if err := ws.Chmod(ctx, name, mode); err != nil {
			t.Errorf("chmod %v: %v", mode, err)
		}
		e.wantMode(t, "a file after chmod", name, mode)
	}
	e.mkdir(t, join(dir, "d"))
	if err := ws.Chmod(ctx, join(dir, "d"), 0o700); err != nil {
		t.Errorf("chmod of a directory: %v", err)
	}
	e.wantMode(t, "a directory after chmod", join(dir, "d"), fs.ModeDir|0o700)
	e.wantFile(t, "a file after chmod", name, "x")
	if e.features.Has(workspace.FeatureSymlink) {
		e.symlink(t, "file", join(dir, "link"))
		if err := ws.Chmod(ctx, join(dir, "link"), 0o640); err != nil {
			t.Errorf("chmod through a link: %v", err)
		}
		e.wantMode(t, "a file after chmod through a link", name, 0o640)
	}
}

func checkChtimes(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	name := join(dir, "file")
	e.writeFile(t, name, "x")
	e.mkdir(t, join(dir, "d"))
	for _, at := range []time.Time{
		time.Date(2001, 2, 3, 4, 5, 6, 123_456_000, time.UTC), time.Date(1969, 12, 31, 23, 59, 58, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.FixedZone("", 7200)),
	} {
		for _, name := range []string{name, join(dir, "d")} {
			if err := ws.Chtimes(ctx, name, at); err != nil {
				t.Errorf("chtimes to %v: %v", at, err)
			}
			if info, err := ws.Stat(ctx, name); err != nil || !info.ModTime.Equal(at) {
				t.Errorf("after chtimes to %v the time is %v, error %v", at, info.ModTime, err)
			}
		}
		name := join(dir, "written")
		if err := write(ctx, ws, name, []byte("x"), workspace.WriteOptions{ModTime: at}); err != nil {
			t.Errorf("write with the time %v: %v", at, err)
		}
		if info, err := ws.Stat(ctx, name); err != nil || !info.ModTime.Equal(at) {
			t.Errorf("after a write with the time %v it is %v, error %v", at, info.ModTime, err)
		}
	}
	e.writeFile(t, name, "y")
	if info, err := ws.Stat(ctx, name); err != nil || info.ModTime.Year() == 2099 {
		t.Errorf("after a write the time is %v, error %v, want about now", info.ModTime, err)
	}
}

func checkExclusive(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	exclusive := workspace.WriteOptions{Exclusive: true}
	e.writeFile(t, join(dir, "file"), "as it was")
	e.mkdir(t, join(dir, "d"))
	taken := []string{"file", "d"}
	if e.features.Has(workspace.FeatureSymlink) {
		e.symlink(t, "missing", join(dir, "dangling"))
		e.symlink(t, "file", join(dir, "link"))
		taken = append(taken, "dangling", "link")
	}
	for _, name := range taken {
		wantPathError(t, "exclusive create of "+name, write(ctx, ws, join(dir, name), []byte("x"), exclusive), join(dir, name), fs.ErrExist)
	}
	e.wantFile(t, "a file that was there", join(dir, "file"), "as it was")
	if _, err := ws.Lstat(ctx, join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an exclusive create went through a dangling link: %v", err)
	}
	// Of many at once, one.
	name := join(dir, "sub/race")
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = write(ctx, ws, name, fmt.Appendf(nil, "by %d", i), exclusive) })
	}
	wg.Wait()
	winner := ""
	for i, err := range errs {
		switch {
		case err != nil:
			wantPathError(t, "an exclusive create that lost", err, name, fs.ErrExist)
		case winner != "":
			t.Errorf("two exclusive creates of one file succeeded")
		default:
			winner = fmt.Sprintf("by %d", i)
		}
	}
	e.wantFile(t, "the file of the one that won", name, winner)
}

func checkAppend(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	name := join(dir, "sub/file")
	adding := workspace.WriteOptions{Append: true, Mode: 0o600}
	for _, s := range []string{"one", "", " two\n", "three\xff"} {
		if err := write(ctx, ws, name, []byte(s), adding); err != nil {
			t.Fatalf("append %q: %v", s, err)
		}
	}
	e.wantFile(t, "appended to", name, "one two\nthree\xff")
	e.wantMode(t, "a file made by an append", name, 0o600)
	w, err := ws.Create(ctx, name, adding)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("never")); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort an append: %v", err)
	}
	e.wantFile(t, "after an aborted append", name, "one two\nthree\xff")
}

// checkUnsupported tries what the provider does not announce.
func checkUnsupported(t testing.TB, e *env) {
	ws, ctx := e.shared(t), e.context(t)
	name := join(e.wd, "unsupported")
	opened := func(opts workspace.WriteOptions) error {
		w, err := ws.Create(ctx, name, opts)
		if err != nil {
			return err
		}
		return w.Close()
	}
	calls := []struct {
		feature workspace.Feature
		needs   workspace.Feature
		call    func() error
	}{
		{workspace.FeatureCommands, "", func() error { _, err := ws.Run(ctx, workspace.Command{Args: []string{"true"}}); return err }},
		{workspace.FeatureCommands, "", func() error { _, err := ws.Start(ctx, workspace.Command{Args: []string{"true"}}); return err }},
		{workspace.FeatureShell, "", func() error { _, err := ws.Run(ctx, workspace.Command{Script: "true"}); return err }},
		{workspace.FeatureAttachRun, workspace.FeatureCommands, func() error {
			_, err := ws.Run(ctx, workspace.Command{Args: []string{"true"}, Detached: true})
			return err
		}},
		{workspace.FeatureAttachRun, "", func() error {
			for _, err := range ws.ListRuns(ctx) {
				return err
			}
			return nil
		}},
		{workspace.FeatureAttachRun, "", func() error {
			_, err := ws.AttachRun(ctx, "run-1", workspace.AttachOptions{})
			return err
		}},
		{workspace.FeatureAttachRun, "", func() error { return ws.StopRun(ctx, "run-1") }},
		{workspace.FeatureFiles, "", func() error { _, err := ws.Stat(ctx, name); return err }},
		{workspace.FeatureFiles, "", func() error { return ws.WriteFile(ctx, name, nil) }},
		{workspace.FeatureRename, "", func() error { return ws.Rename(ctx, name, name+"2") }},
		{workspace.FeatureSymlink, "", func() error { return ws.Symlink(ctx, "x", name) }},
		{workspace.FeatureSymlink, "", func() error { _, err := ws.Readlink(ctx, name); return err }},
		{workspace.FeatureChmod, "", func() error { return ws.Chmod(ctx, name, 0o600) }},
		{workspace.FeatureChtimes, "", func() error { return ws.Chtimes(ctx, name, time.Unix(1, 0)) }},
		{workspace.FeatureChtimes, workspace.FeatureFiles, func() error { return opened(workspace.WriteOptions{ModTime: time.Unix(1, 0)}) }},
		{workspace.FeatureExclusive, workspace.FeatureFiles, func() error { return opened(workspace.WriteOptions{Exclusive: true}) }},
		{workspace.FeatureAppend, workspace.FeatureFiles, func() error { return opened(workspace.WriteOptions{Append: true}) }},
	}
	tried := false
	for _, c := range calls {
		if e.features.Has(c.feature) || c.needs != "" && !e.features.Has(c.needs) {
			continue
		}
		tried = true
		wantError(t, "a call of the feature "+string(c.feature)+", which is absent", c.call(), errors.ErrUnsupported)
	}
	if !tried {
		e.notChecked(t, "the provider has every feature")
	}
}
