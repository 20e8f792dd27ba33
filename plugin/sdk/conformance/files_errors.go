package conformance

import (
	"context"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func fileErrorChecks() []check {
	return []check{
		{name: "F3_MissingIsNotExist", needs: files, run: checkMissing},
		{name: "F3_DirectoryIsEISDIR", needs: files, run: checkIsDirectory},
		{name: "F3_BelowAFileIsENOTDIR", needs: files, run: checkBelowFile},
		{name: "F3_LoopIsELOOP", needs: filesAnd(workspace.FeatureSymlink), run: checkLoop},
		{name: "F3_LongNameIsENAMETOOLONG", needs: files, run: checkLongName},
		{name: "F3_ForbiddenIsErrPermission", needs: filesAnd(workspace.FeatureChmod), run: checkForbidden},
		{name: "F3_SpecialFilesNeverWait", needs: both, run: checkSpecial},
	}
}

func checkMissing(t testing.TB, e *env) {
	ws, dir := e.shared(t), e.dir(t)
	for _, name := range []string{join(dir, "missing"), e.relative(dir) + "/missing", join(dir, "missing/below")} {
		for what, err := range e.callsOnMissing(t, ws, name) {
			wantPathError(t, what+" of a missing file", err, name, fs.ErrNotExist)
		}
	}
}

// callsOnMissing makes the calls that need a file to be there.
func (e *env) callsOnMissing(t testing.TB, ws workspace.Workspace, name string) map[string]error {
	t.Helper()
	ctx := e.context(t)
	errs := map[string]error{}
	_, errs["stat"] = ws.Stat(ctx, name)
	_, errs["lstat"] = ws.Lstat(ctx, name)
	_, errs["readdir"] = ws.ReadDir(ctx, name)
	_, errs["read"] = ws.ReadFile(ctx, name)
	errs["remove"] = ws.Remove(ctx, name)
	e.optionalCallsOn(ctx, ws, name, errs)
	return errs
}

// callsOn makes every call on one path.
func (e *env) callsOn(t testing.TB, ws workspace.Workspace, name string) map[string]error {
	t.Helper()
	ctx := e.context(t)
	errs := e.callsOnMissing(t, ws, name)
	errs["write"] = ws.WriteFile(ctx, name, []byte("x"))
	errs["mkdirall"] = ws.MkdirAll(ctx, name)
	_, errs["realpath"] = ws.RealPath(ctx, name)
	return errs
}

// optionalCallsOn makes those calls that the provider has.
func (e *env) optionalCallsOn(ctx context.Context, ws workspace.Workspace, name string, errs map[string]error) {
	if e.features.Has(workspace.FeatureChmod) {
		errs["chmod"] = ws.Chmod(ctx, name, 0o600)
	}
	if e.features.Has(workspace.FeatureChtimes) {
		errs["chtimes"] = ws.Chtimes(ctx, name, time.Unix(1, 0))
	}
	if e.features.Has(workspace.FeatureSymlink) {
		_, errs["readlink"] = ws.Readlink(ctx, name)
	}
	if e.features.Has(workspace.FeatureRename) {
		errs["rename"] = ws.Rename(ctx, name, name)
	}
}

func checkIsDirectory(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	_, err := ws.ReadFile(ctx, dir)
	wantPathError(t, "read of a directory", err, dir, syscall.EISDIR)
	err = ws.WriteFile(ctx, dir, []byte("x"))
	wantPathError(t, "write over a directory", err, dir, syscall.EISDIR)
}

func checkBelowFile(t testing.TB, e *env) {
	ws, dir := e.shared(t), e.dir(t)
	e.writeFile(t, join(dir, "file"), "x")
	name := join(dir, "file/below")
	for what, err := range e.callsOn(t, ws, name) {
		if what == "realpath" { // which may keep what is not there
			continue
		}
		wantPathError(t, what+" below a file", err, name, syscall.ENOTDIR)
	}
	_, err := ws.ReadDir(e.context(t), join(dir, "file"))
	wantPathError(t, "list a file", err, join(dir, "file"), syscall.ENOTDIR)
	e.wantFile(t, "the file", join(dir, "file"), "x")
}

func checkLoop(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	e.symlink(t, "b", join(dir, "a"))
	e.symlink(t, "a", join(dir, "b"))
	name := join(dir, "a")
	_, err := ws.Stat(ctx, name)
	wantPathError(t, "stat of a loop", err, name, syscall.ELOOP)
	_, err = ws.ReadFile(ctx, name)
	wantPathError(t, "read of a loop", err, name, syscall.ELOOP)
	_, err = ws.ReadDir(ctx, name)
	wantPathError(t, "list a loop", err, name, syscall.ELOOP)
	err = ws.WriteFile(ctx, name, []byte("x"))
	wantPathError(t, "write to a loop", err, name, syscall.ELOOP)
	_, err = ws.Stat(ctx, join(name, "below"))
	wantPathError(t, "stat below a loop", err, join(name, "below"), syscall.ELOOP)
}

func checkLongName(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	name := join(dir, strings.Repeat("n", 256))
	_, err := ws.Stat(ctx, name)
	wantPathError(t, "stat of a name of 256 bytes", err, name, syscall.ENAMETOOLONG)
	err = ws.WriteFile(ctx, name, []byte("x"))
	wantPathError(t, "write to a name of 256 bytes", err, name, syscall.ENAMETOOLONG)
	err = ws.MkdirAll(ctx, name)
	wantPathError(t, "make a directory of 256 bytes", err, name, syscall.ENAMETOOLONG)
}

func checkForbidden(t testing.TB, e *env) {
	ws, ctx, dir := e.shared(t), e.context(t), e.dir(t)
	name := join(dir, "file")
	e.writeFile(t, name, "x")
	if err := ws.Chmod(ctx, name, 0); err != nil {
		t.Fatal(err)
	}
	_, err := ws.ReadFile(ctx, name)
	if err == nil {
		e.notChecked(t, "the workspace's user may read any file")
		return
	}
	wantPathError(t, "read of a file with mode 0000", err, name, fs.ErrPermission)
	e.mkdir(t, join(dir, "d"))
	if err := ws.Chmod(ctx, join(dir, "d"), 0o500); err != nil {
		t.Fatal(err)
	}
	name = join(dir, "d/new")
	wantPathError(t, "write in a directory with mode 0500", ws.WriteFile(ctx, name, []byte("x")), name, fs.ErrPermission)
	if err := ws.Chmod(ctx, join(dir, "d"), 0o700); err != nil {
		t.Error(err)
	}
}

func checkSpecial(t testing.TB, e *env) {
	ws, dir := e.shared(t), e.dir(t)
	e.output(t, "fifo", join(dir, "fifo"))
	e.output(t, "socket", join(dir, "socket"))
	for name, kind := range map[string]fs.FileMode{
		join(dir, "fifo"):   fs.ModeNamedPipe,
		join(dir, "socket"): fs.ModeSocket,
		"/dev/zero":         fs.ModeDevice | fs.ModeCharDevice,
	} {
		info, err := ws.Stat(e.context(t), name)
		if name == "/dev/zero" && err != nil { // a workspace need not have devices
			continue
		}
		if err != nil || info.Mode.Type() != kind {
			t.Errorf("stat %s: type %v, error %v, want %v", name, info.Mode.Type(), err, kind)
		}
		ctx, cancel := context.WithTimeout(e.context(t), e.opts.limits.slack)
		a := within(t, e.opts.limits.patience, "read "+name, func() error {
			r, err := ws.Open(ctx, name, workspace.ReadOptions{Length: 1})
			if err == nil {
				err = r.Close()
			}
			return err
		})
		waited := ctx.Err()
		cancel()
		switch {
		case waited != nil:
			t.Errorf("read of %s waited until its context ended", name)
		case a == nil:
			t.Errorf("read of %s, which is no file, succeeded", name)
		default:
			wantPathError(t, "read of "+name, a, name, a)
		}
	}
}
