package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func argvChecks() []check {
	return []check{
		{name: "C1_ArgumentsAreLiteral", needs: commands, run: checkArguments},
		{name: "C1_ScriptRunsUnderShell", needs: append(slices.Clone(commands), workspace.FeatureShell), run: checkScript},
		{name: "C1_InvalidCommandsStartNothing", needs: commands, run: checkInvalidCommands},
		{name: "C1_NULInPathIsInvalid", needs: files, run: checkNULPaths},
		{name: "C1_TooBigIsE2BIG", needs: commands, run: checkTooBig},
	}
}

func startChecks() []check {
	return []check{
		{name: "C2_StartsInWorkingDirectory", needs: commands, run: checkWorkingDir},
		{name: "C2_DirIsWhereItStarts", needs: commands, run: checkDir},
		{name: "C2_MissingDirStartsNothing", needs: both, run: checkMissingDir},
		{name: "C2_ProgramIsFoundInItsOwnPATH", needs: both, run: checkPATH},
		{name: "C2_StdinIsAtItsEnd", needs: commands, run: checkStdinEnd},
		{name: "C2_StdinIsDelivered", needs: commands, run: checkStdin},
		{name: "C2_UnreadStdinDelaysNothing", needs: commands, run: checkUnreadStdin},
	}
}

func exitChecks() []check {
	return []check{
		{name: "C3_ExitCodeIsReal", needs: commands, run: checkExitCode},
		{name: "C3_MissingProgramIs127", needs: commands, run: checkMissingProgram},
		{name: "C3_NotExecutableIs126", needs: both, run: checkNotExecutable},
		{name: "C3_KilledBySignalIs128PlusN", needs: commands, run: checkKilled},
	}
}

// oddStrings is what a shell, a template or a text format would not leave as it
// is (deepagents#1483 and others).
func oddStrings() []string {
	return []string{
		"plain", "", " ", "  two  spaces  ", "a'b", `a"b`, "$(id)", "`id`", "$HOME", "${HOME}", "-rf", "--", "*", "?", "[a-z]", "~", "#x",
		"a;b", "a&b", "a|b", "a>b", "(a)", "{a,b}", "!x", `\`, `\\`, `\n`, "a\nb", "\n", "a\r\nb", "a\tb", "\x01\x7f", "x:1:y", "%s%d", "100%",
		"é", "日本語", "e\u0301", "\u202e", "\ufeff", "a\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80",
	}
}

func checkArguments(t testing.TB, e *env) {
	want := oddStrings()
	res := e.success(t, e.cmd(t, append([]string{"args"}, want...)...))
	if got := hexLines(t, res.Stdout); !slices.Equal(got, want) {
		t.Errorf("the command got %d arguments %.300q, want %d: %.300q", len(got), got, len(want), want)
	}
}

func checkScript(t testing.TB, e *env) {
	for _, s := range []struct {
		script, stdout string
		code           int
	}{
		{"echo $((1 + 2)) | cat; exit 3", "3\n", 3},
		{"false; echo still here", "still here\n", 0}, // no set -e
		{"echo \"$unset.\"", ".\n", 0},                // no set -u
		{"cat <<'END'\na $(b) 'c\nEND", "a $(b) 'c\n", 0},
		{"printf '%s' \"$#\"", "0", 0},
		{"# nothing", "", 0},
		{"set -e; exit 5", "", 5},
	} {
		res, err := e.run(t, workspace.Command{Script: s.script})
		if err != nil || res.ExitCode != s.code || string(res.Stdout) != s.stdout {
			t.Errorf("script %q: %s, want exit code %d, stdout %q", s.script, outcome(res, err), s.code, s.stdout)
		}
	}
}

// checkInvalidCommands gives the part that is wrong together with a command
// that would leave something behind.
func checkInvalidCommands(t testing.TB, e *env) {
	dir := e.dir(t)
	mark := join(dir, "mark")
	touch := e.cmd(t, "touch", mark).Args
	for what, cmd := range map[string]workspace.Command{
		"neither argv nor script":       {},
		"both argv and script":          {Args: touch, Script: "exit 0"},
		"an empty argv":                 {Args: []string{}},
		"an empty program":              {Args: []string{"", "touch", mark}},
		"NUL in an argument":            {Args: append(slices.Clone(touch), "a\x00b")},
		"NUL in a script":               {Script: "exit 0\x00"},
		"NUL in Dir":                    {Args: touch, Dir: ".\x00/x"},
		"NUL in an env value":           {Args: touch, Env: map[string]string{"A": "b\x00c"}},
		"NUL in an env name":            {Args: touch, Env: map[string]string{"A\x00B": "c"}},
		"= in an env name":              {Args: touch, Env: map[string]string{"A=B": "c"}},
		"an empty env name":             {Args: touch, Env: map[string]string{"": "c"}},
		"a negative output limit":       {Args: touch, OutputLimit: -2},
		"no output limit, not streamed": {Args: touch, OutputLimit: workspace.NoOutputLimit},
	} {
		res, err := e.run(t, cmd)
		if err == nil {
			t.Errorf("%s: %s, want %v", what, outcome(res, err), workspace.ErrInvalid)
		} else {
			wantInvalid(t, what, err)
		}
		if e.exists(t, mark) {
			t.Fatalf("%s: the command was started", what)
		}
	}
}

func checkNULPaths(t testing.TB, e *env) {
	ws := e.shared(t)
	name := join(e.dir(t), "a\x00b")
	for what, err := range e.callsOn(t, ws, name) {
		wantPathError(t, what+" of a path with NUL", err, name, workspace.ErrInvalid)
	}
}

// What execve refuses: one string over 128 KiB, and more than 6 MiB in all
// whatever the stack's limit is.
const (
	maxString  = 128 << 10
	maxStrings = 6 << 20
)

func checkTooBig(t testing.TB, e *env) {
	big := strings.Repeat("x", maxString-1)
	if res, err := e.run(t, e.cmd(t, "exit", "0", big[:100<<10])); err != nil || res.ExitCode != 0 {
		t.Errorf("an argument of 100 KiB: %s, want exit code 0", outcome(res, err))
	}
	many := []string{"exit", "0"}
	for range maxStrings/len(big) + 2 {
		many = append(many, big)
	}
	for what, cmd := range map[string]workspace.Command{
		"an argument of 5 MiB":      e.cmd(t, "exit", "0", strings.Repeat("x", 5<<20)),
		"an argument of 129 KiB":    e.cmd(t, "exit", "0", strings.Repeat("x", maxString+1024)),
		"an env value of 129 KiB":   {Args: e.cmd(t, "exit", "0").Args, Env: map[string]string{"A": strings.Repeat("x", maxString+1024)}},
		"arguments of 6 MiB in all": e.cmd(t, many...),
	} {
		res, err := e.run(t, cmd)
		if err == nil {
			t.Errorf("%s: %s, want an error", what, outcome(res, err))
			continue
		}
		wantInvalid(t, what, err)
		wantError(t, what, err, syscall.E2BIG)
	}
}

func checkWorkingDir(t testing.TB, e *env) {
	ws := e.shared(t)
	dir := e.workingDir(t, ws)
	if !path.IsAbs(dir) || path.Clean(dir) != dir {
		t.Errorf("the working directory is %q, want an absolute and clean path", dir)
	}
	if got := e.output(t, "cwd"); got != dir {
		t.Errorf("a command starts in %q, the working directory is %q", got, dir)
	}
	if e.features.Has(workspace.FeatureFiles) {
		if canonical, err := ws.RealPath(e.context(t), dir); canonical != dir || err != nil {
			t.Errorf("the working directory %q is %q really (error %v), want a canonical path", dir, canonical, err)
		}
	}
	ref, _ := ws.Ref()
	if again := e.workingDir(t, e.attach(t, e.opts.Host, ref)); again != dir {
		t.Errorf("the working directory was %q, and is %q to another handle", dir, again)
	}
}

func checkDir(t testing.TB, e *env) {
	ws := e.shared(t)
	dir := e.dir(t)
	e.output(t, "mkdir", join(dir, "a b/c"))
	relative := strings.TrimPrefix(dir, strings.TrimSuffix(e.wd, "/")+"/")
	dirs := map[string]string{
		dir:                     dir,
		join(dir, "a b/c"):      join(dir, "a b/c"),
		relative:                dir,
		"./" + relative + "/":   dir,
		relative + "/a b/c/..":  join(dir, "a b"),
		".":                     e.wd,
		"/":                     "/",
		join(dir, "a b//c/./."): join(dir, "a b/c"),
	}
	if e.features.Has(workspace.FeatureSymlink) {
		if err := ws.Symlink(e.context(t), "a b/c", join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		dirs[join(dir, "link")] = join(dir, "a b/c")
		dirs[join(dir, "link/..")] = join(dir, "a b")
	}
	for given, want := range dirs {
		cmd := e.cmd(t, "cwd")
		cmd.Dir = given
		if res, err := e.run(t, cmd); err != nil || string(res.Stdout) != want {
			t.Errorf("Dir %q: %s, want stdout %q", given, outcome(res, err), want)
		}
	}
}

func checkMissingDir(t testing.TB, e *env) {
	dir := e.dir(t)
	mark := join(dir, "mark")
	if err := e.shared(t).WriteFile(e.context(t), join(dir, "file"), nil); err != nil {
		t.Fatal(err)
	}
	for given, kind := range map[string]error{
		join(dir, "missing"):     fs.ErrNotExist,
		"no/such/directory":      fs.ErrNotExist,
		join(dir, "file"):        syscall.ENOTDIR,
		join(dir, "file/deeper"): syscall.ENOTDIR,
	} {
		cmd := e.cmd(t, "touch", mark)
		cmd.Dir = given
		res, err := e.run(t, cmd)
		if err == nil {
			t.Errorf("Dir %q: %s, want an error", given, outcome(res, err))
			continue
		}
		wantPathError(t, "Dir "+given, err, given, kind)
	}
	if e.exists(t, mark) {
		t.Error("a command whose Dir is missing was started")
	}
}

func checkPATH(t testing.TB, e *env) {
	ws := e.shared(t)
	dir := e.dir(t)
	if e.features.Has(workspace.FeatureSymlink) {
		if err := ws.Symlink(e.context(t), e.probe(t, ws), join(dir, "conformance-tool")); err != nil {
			t.Fatal(err)
		}
	} else {
		data, err := ws.ReadFile(e.context(t), e.probe(t, ws))
		if err != nil {
			t.Fatal(err)
		}
		if err := write(e.context(t), ws, join(dir, "conformance-tool"), data, workspace.WriteOptions{Mode: probeMode}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := workspace.Command{Args: []string{"conformance-tool", "exit", "7"}}
	if res, err := e.run(t, cmd); err != nil || res.ExitCode != workspace.ExitNotFound {
		t.Errorf("a program that is not in PATH: %s, want exit code 127", outcome(res, err))
	}
	cmd.Env = map[string]string{"PATH": "/nowhere:" + dir}
	if res, err := e.run(t, cmd); err != nil || res.ExitCode != 7 {
		t.Errorf("a program in the command's own PATH: %s, want exit code 7", outcome(res, err))
	}
}

func checkStdinEnd(t testing.TB, e *env) {
	if got := e.output(t, "cat"); got != "" {
		t.Errorf("a command without stdin read %q", got)
	}
}

// stdinBytes is more than every buffer on the way.
const stdinBytes = 5 << 20

func checkStdin(t testing.TB, e *env) {
	for _, n := range []int{0, 1, 64 << 10, 128<<10 + 1, stdinBytes} {
		cmd := e.cmd(t, "sum")
		cmd.Stdin = pattern.Reader(int64(n))
		want := fmt.Sprintf("%d %x\n", n, sha256.Sum256(pattern.Bytes(n)))
		if res := e.success(t, cmd); string(res.Stdout) != want {
			t.Errorf("of %d bytes on stdin the command read %q, want %q", n, res.Stdout, want)
		}
	}
	cmd := e.cmd(t, "cat")
	in := pattern.Bytes(300 << 10)
	cmd.Stdin = bytes.NewReader(in)
	if res := e.success(t, cmd); !bytes.Equal(res.Stdout, in) {
		t.Errorf("cat returned %s", difference(res.Stdout, in))
	}
}

func checkUnreadStdin(t testing.TB, e *env) {
	r, w := io.Pipe() // nobody writes, and nobody closes it before the end
	defer w.Close()
	cmd := e.cmd(t, "exit", "4")
	cmd.Stdin = r
	if res, err := e.run(t, cmd); err != nil || res.ExitCode != 4 {
		t.Errorf("a command that does not read its stdin, which blocks: %s, want exit code 4", outcome(res, err))
	}
	cmd = e.cmd(t, "exit", "5")
	cmd.Stdin = pattern.Reader(1 << 40)
	if res, err := e.run(t, cmd); err != nil || res.ExitCode != 5 {
		t.Errorf("a command that does not read its stdin, which never ends: %s, want exit code 5", outcome(res, err))
	}
}

func checkExitCode(t testing.TB, e *env) {
	for _, code := range []int{0, 1, 2, 7, 100, 124, 125, 126, 127, 128, 130, 137, 200, 254, 255} {
		if res, err := e.run(t, e.cmd(t, "exit", strconv.Itoa(code))); err != nil || res.ExitCode != code {
			t.Errorf("exit %d: %s", code, outcome(res, err))
		}
	}
}

func checkMissingProgram(t testing.TB, e *env) {
	for _, program := range []string{"/no/such/program", "no-such-program", "./no-such-program"} {
		res, err := e.run(t, workspace.Command{Args: []string{program}})
		if err != nil || res.ExitCode != workspace.ExitNotFound || len(res.Stdout) != 0 || len(res.Stderr) == 0 {
			t.Errorf("%s: %s, want exit code 127, nothing on stdout and the reason on stderr", program, outcome(res, err))
		}
	}
}

func checkNotExecutable(t testing.TB, e *env) {
	dir := e.dir(t)
	text := join(dir, "text")
	if err := e.shared(t).WriteFile(e.context(t), text, []byte("exit 0\n")); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{text, dir} {
		res, err := e.run(t, workspace.Command{Args: []string{program}})
		if err != nil || res.ExitCode != workspace.ExitNotExecutable || len(res.Stdout) != 0 || len(res.Stderr) == 0 {
			t.Errorf("%s: %s, want exit code 126, nothing on stdout and the reason on stderr", program, outcome(res, err))
		}
	}
}

func checkKilled(t testing.TB, e *env) {
	for _, n := range []int{int(syscall.SIGKILL), int(syscall.SIGTERM), int(syscall.SIGINT), int(syscall.SIGHUP)} {
		if res, err := e.run(t, e.cmd(t, "signal", strconv.Itoa(n))); err != nil || res.ExitCode != 128+n {
			t.Errorf("killed by signal %d: %s, want exit code %d", n, outcome(res, err), 128+n)
		}
	}
	for sig, n := range map[workspace.Signal]int{workspace.SignalKill: 9, workspace.SignalTerminate: 15} {
		p := e.started(t, e.context(t), e.shared(t), e.cmd(t, "tree", e.pids(t)))
		if err := p.Signal(e.context(t), sig); err != nil {
			t.Errorf("send %s: %v", sig, err)
		}
		if res, err := e.wait(t, p, "a command that was sent "+string(sig)); err != nil || res.ExitCode != 128+n {
			t.Errorf("sent %s: %s, want exit code %d", sig, outcome(res, err), 128+n)
		}
	}
}

// difference tells where two byte strings part.
func difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	if i == len(got) && i == len(want) {
		return "the same bytes"
	}
	return fmt.Sprintf("%d bytes, want %d; they differ from byte %d on: %.20q, want %.20q", len(got), len(want), i, got[i:], want[i:])
}

// write is WriteFile with options.
func write(ctx context.Context, ws workspace.Workspace, name string, data []byte, opts workspace.WriteOptions) error {
	w, err := ws.Create(ctx, name, opts)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Close()
}
