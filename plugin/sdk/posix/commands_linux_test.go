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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// write puts a file into the workspace's folder, with a mode.
func write(t testing.TB, ws *posix.Workspace, name, content string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(ws.WorkingDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestC3_ExitCodes is of the code, and of what is said where there is no program
// to say it.
func TestC3_ExitCodes(t *testing.T) {
	ws := openWorkspace(t)
	write(t, ws, "no-shebang", "echo hello\n", 0o755)
	write(t, ws, "not-executable", "#!/bin/sh\n", 0o644)
	write(t, ws, "bad-interpreter", "#!/no/such/interpreter\n", 0o755)
	write(t, ws, "garbage", "\x7fELF nonsense", 0o755)
	write(t, ws, "bin/found", "#!/bin/sh\necho \"found $0\"\n", 0o755)
	write(t, ws, "bin/denied", "#!/bin/sh\n", 0o644)
	path := map[string]string{"PATH": "bin:/bin"}
	for _, test := range []struct {
		name   string
		cmd    sdk.Command
		code   int
		reason string
	}{
		{"success", script("true"), 0, ""},
		{"its own", script("exit 42"), 42, ""},
		{"the highest", script("exit 255"), 255, ""},
		{"TERM", script("kill -TERM $$"), 128 + 15, ""},
		{"KILL", script("kill -KILL $$"), 128 + 9, ""},
		{"missing", sdk.Command{Args: []string{"no-such-program"}}, 127, "no-such-program: not found in PATH"},
		{"missing path", sdk.Command{Args: []string{"./no-such-program"}}, 127, "no such file"},
		{"below a file", sdk.Command{Args: []string{"./no-shebang/x"}}, 127, "not a directory"},
		{"a directory", sdk.Command{Args: []string{"/etc"}}, 126, "permission denied"},
		{"no x bit", sdk.Command{Args: []string{"./not-executable"}}, 126, "permission denied"},
		{"no x bit in PATH", sdk.Command{Args: []string{"denied"}, Env: path}, 126, "permission denied"},
		{"no shebang", sdk.Command{Args: []string{"./no-shebang"}}, 126, "exec format error"},
		{"garbage", sdk.Command{Args: []string{"./garbage"}}, 126, "exec format error"},
		{"no interpreter", sdk.Command{Args: []string{"./bad-interpreter"}}, 126, "interpreter"},
		{"its own PATH", sdk.Command{Args: []string{"found"}, Env: path}, 0, ""},
		{"an empty PATH is here", sdk.Command{Args: []string{"no-shebang"}, Env: map[string]string{"PATH": ""}}, 126, "exec format error"},
		{"PATH from the own Dir", sdk.Command{Args: []string{"found"}, Dir: ws.WorkingDir() + "/bin", Env: map[string]string{"PATH": "."}}, 0, ""},
		{"a name of 1 MiB", sdk.Command{Args: []string{strings.Repeat("n", 100<<10)}}, 127, "not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := run(t, ws, test.cmd)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d (stderr %q)", r.code, test.code, r.stderr)
			}
			if test.reason != "" && (r.stdout != "" || !strings.Contains(r.stderr, test.reason)) {
				t.Errorf("stdout %q, stderr %q; want none, and %q", r.stdout, r.stderr, test.reason)
			}
		})
	}
	if r := run(t, ws, sdk.Command{Args: []string{"found"}, Env: path}); !strings.HasSuffix(strings.TrimSpace(r.stdout), "bin/found") {
		t.Errorf("ran %q", r.stdout)
	}
}

func TestC1_RefusedForItsSize(t *testing.T) {
	ws := openWorkspace(t)
	many := make([]string, 1<<20)
	for i := range many {
		many[i] = "argument"
	}
	for name, cmd := range map[string]sdk.Command{
		"one of 5 MiB": {Args: []string{"/bin/true", strings.Repeat("x", 5<<20)}},
		"the sum":      {Args: append([]string{"/bin/true"}, many...)},
		"a variable":   {Args: []string{"/bin/true"}, Env: map[string]string{"V": strings.Repeat("x", 200<<10)}},
	} {
		p, err := ws.Start(t.Context(), cmd)
		if !errors.Is(err, workspace.ErrInvalid) || !errors.Is(err, syscall.E2BIG) {
			t.Errorf("%s: %v (process %v), want ErrInvalid and E2BIG", name, err, p)
		}
	}
	if r := run(t, ws, script("echo fine")); r.stdout != "fine\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

func TestC2_Dir(t *testing.T) {
	ws := openWorkspace(t)
	file := write(t, ws, "file", "", 0o644)
	if err := os.Mkdir(filepath.Join(ws.WorkingDir(), "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir, want string
		err       error
	}{
		{"", ws.WorkingDir(), nil},
		{"sub", ws.WorkingDir() + "/sub", nil},
		{"/", "/", nil},
		{ws.WorkingDir() + "/gone", "", fs.ErrNotExist},
		{"gone", "", fs.ErrNotExist},
		{file, "", syscall.ENOTDIR},
		{file + "/x", "", syscall.ENOTDIR},
	} {
		p, err := ws.Start(t.Context(), sdk.Command{Args: []string{"/bin/pwd"}, Dir: test.dir})
		if test.err != nil {
			var pathErr *fs.PathError
			if !errors.Is(err, test.err) || !errors.As(err, &pathErr) || pathErr.Path != test.dir {
				t.Errorf("Dir %q: %v, want a PathError with %v", test.dir, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Dir %q: %v", test.dir, err)
			continue
		}
		if r := wait(t, p); r.stdout != test.want+"\n" {
			t.Errorf("Dir %q: started in %q", test.dir, r.stdout)
		}
		_ = p.Close()
	}
}

// TestC9_NothingIsInherited starts commands from a process of its own, whose
// every attribute is another than the default.
func TestC9_NothingIsInherited(t *testing.T) {
	dir := t.TempDir()
	out := runRole(t, roleAttributes, dir, "SECRET=of the plugin", "GOMAXPROCS=2")
	for _, line := range []string{
		"env LANG=C.UTF-8", "env ONE=1", "umask 0022", "nice 0",
		"oom 500", "SigBlk: 0000000000000000", "SigIgn: 0000000000000000",
		"nofile 1024", "core 0", "fsize unlimited",
		"fds 0 1 2 3", // 3 is ls's own
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no %q", line)
		}
	}
	for _, word := range []string{"SECRET", "GOMAXPROCS", roleEnv} {
		if strings.Contains(out, word) {
			t.Errorf("the command has %s", word)
		}
	}
	if t.Failed() {
		t.Logf("the command said:\n%s", out)
	}
	if got, want := len(grep(out, "env ")), 3+1; got != want { // PWD is the shell's own
		t.Errorf("%d variables, want %d: %q", got, want, grep(out, "env "))
	}
}

func grep(text, prefix string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestStdin(t *testing.T) {
	ws := openWorkspace(t)
	if r := run(t, ws, sdk.Command{Args: []string{"cat"}}); r.code != 0 || r.stdout != "" {
		t.Errorf("without stdin: %+v", r)
	}
	p := start(t, ws, sdk.Command{Args: []string{"sha256sum"}, Stdin: true})
	go func() {
		defer p.Stdin().Close()
		_, _ = io.Copy(p.Stdin(), io.LimitReader(zeros{}, 8<<20))
	}()
	const sum = "2daeb1f36095b44b318410b3f4e8b5d989dcc7bb023d1426c492dab0a3053e74  -\n" // of 8 MiB of zeros
	if r := wait(t, p); r.stdout != sum {
		t.Errorf("sha256sum of 8 MiB: %q", r.stdout)
	}
	// One that reads nothing, and whose child holds its stdin, blocks no writer.
	p = start(t, ws, sdk.Command{Args: []string{"/bin/sh", "-c", "exec 3<&0; sleep 987 <&3 >/dev/null 2>&1 & echo $!"}, Stdin: true})
	written := make(chan error, 1)
	go func() { _, err := io.Copy(p.Stdin(), zeros{}); written <- err }()
	r := wait(t, p)
	if err := <-written; err == nil {
		t.Error("endless input was written without an error")
	}
	killText(t, r.stdout)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSignal(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script("trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.05; done"))
	ready := make([]byte, 6)
	if _, err := io.ReadFull(p.Stdout(), ready); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), "NONSENSE"); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("an unknown signal: %v", err)
	}
	if err := p.Signal(t.Context(), workspace.SignalUser1); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, p); r.code != 3 || r.stdout != "usr1\n" {
		t.Errorf("%+v", r)
	}
	if err := p.Signal(t.Context(), workspace.SignalTerminate); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: %v", err)
	}
}

// TestC4_ShortOutputIsComplete is of what an output loses whose pipe is closed
// at the command's end.
func TestC4_ShortOutputIsComplete(t *testing.T) {
	ws := openWorkspace(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 125 {
				want := fmt.Sprintf("%d-%d", worker, i)
				p, err := ws.Start(context.WithoutCancel(t.Context()), sdk.Command{Args: []string{"printf", "%s", want}})
				if err != nil {
					t.Errorf("printf %s: %v", want, err)
					return
				}
				if r := wait(t, p); r.stdout != want || r.code != 0 {
					t.Errorf("printf %s: %+v", want, r)
				}
				_ = p.Close()
			}
		})
	}
	wg.Wait()
}

// TestC8_SlowReaderLosesNothing reads long after the end.
func TestC8_SlowReaderLosesNothing(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script("head -c 60000 /dev/zero; echo end >&2"))
	if code, err := p.Wait(); code != 0 || err != nil {
		t.Fatalf("Wait: %d, %v", code, err)
	}
	var total int
	buf := make([]byte, 977)
	for {
		n, err := p.Stdout().Read(buf)
		total += n
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if total != 60000 {
		t.Errorf("%d bytes of 60000", total)
	}
}

// TestC4_NotReadingStopsTheWriter bounds what is held for a caller who does not
// read, and loses nothing of it.
func TestC4_NotReadingStopsTheWriter(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script("head -c 3000000 /dev/zero; echo done >&2"))
	done := make(chan struct{})
	go func() { defer close(done); _, _ = p.Wait() }()
	select {
	case <-done:
		t.Fatal("ended though its output is larger than a pipe and nobody reads")
	case <-time.After(300 * time.Millisecond): // long enough to write 3 MB
	}
	if r := wait(t, p); len(r.stdout) != 3000000 || r.stderr != "done\n" {
		t.Errorf("%d bytes, stderr %q", len(r.stdout), r.stderr)
	}
}

// TestC8_BackgroundChildGoesOn is of one that holds the outputs and writes for
// ever: the result comes at once, the child lives, also when it writes.
func TestC8_BackgroundChildGoesOn(t *testing.T) {
	ws := openWorkspace(t)
	for range 3 {
		begun := time.Now()
		r := run(t, ws, script(`echo before; sh -c 'trap "" TERM; while :; do echo noise; echo noise >&2; echo beat >>beats; done' & echo $! >pid; sleep 0.2`))
		if took := time.Since(begun); took > soon {
			t.Errorf("took %v", took)
		}
		pid := readPID(t, filepath.Join(ws.WorkingDir(), "pid"))
		if !strings.Contains(r.stdout, "before\n") || r.code != 0 {
			t.Errorf("%d, %.40q", r.code, r.stdout)
		}
		size := func() int64 {
			info, err := os.Stat(filepath.Join(ws.WorkingDir(), "beats"))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		// Far more than pipes could hold: it is drained.
		before := size()
		eventually(t, "the child writes on", func() bool { return size() > before+200_000 })
		if !alive(pid) {
			t.Error("the child was ended")
		}
		kill(t, pid)
		eventually(t, "the child is reaped", func() bool { return !exists(pid) })
	}
}

// TestC8_HeldOutputEndsWithTheCommand is of a child that holds the pipe and is
// silent.
func TestC8_HeldOutputEndsWithTheCommand(t *testing.T) {
	ws := openWorkspace(t)
	begun := time.Now()
	r := run(t, ws, script("sleep 987 & echo $!; echo err >&2"))
	if time.Since(begun) > soon || r.stderr != "err\n" {
		t.Errorf("%v, %+v", time.Since(begun), r)
	}
	killText(t, r.stdout)
}

func TestStopAfterTheEndLeavesChildrenAlone(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script("sleep 987 >/dev/null 2>&1 & echo $!"))
	r := wait(t, p)
	var pid int
	if _, err := fmt.Sscan(r.stdout, &pid); err != nil {
		t.Fatal(err)
	}
	if survivors := p.Stop(0); survivors != "" {
		t.Errorf("survivors %q", survivors)
	}
	_ = p.Close()
	run(t, ws, script("true")) // another command is not mixed up with it
	if !alive(pid) {
		t.Error("the background child of a command that had ended was stopped")
	}
	kill(t, pid)
}

func TestRefusesWhereTheFolderWasReplaced(t *testing.T) {
	ws := openWorkspace(t)
	if err := os.RemoveAll(ws.WorkingDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(ws.WorkingDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Start(t.Context(), script("true")); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("Start: %v, want ErrUnavailable", err)
	}
}

func killText(t testing.TB, text string) {
	t.Helper()
	var pid int
	if _, err := fmt.Sscan(text, &pid); err != nil {
		t.Fatalf("no pid in %q: %v", text, err)
	}
	if !alive(pid) {
		t.Errorf("process %d, a background child, has ended", pid)
	}
	kill(t, pid)
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Errorf("kill %d: %v", pid, err)
	}
}

func exists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("Z"))
}
