package conformance

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	probePackage = "github.com/berth-dev/berth/plugin/sdk/conformance/probe"
	probeName    = "conformance-probe"
	probeMode    = 0o755
)

// BuildProbe builds the probe binary for a system, or with neither for this
// machine's, into dir and returns its path: to bake it into an image, or to
// build it once for several runs.
func BuildProbe(ctx context.Context, dir, goos, goarch string) (string, error) {
	out := filepath.Join(dir, probeName)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, probePackage) //nolint:gosec // our own package
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	// The caller's module has this one among its own, or is it.
	if _, file, _, ok := runtime.Caller(0); ok {
		if _, err := os.Stat(filepath.Dir(file)); err == nil {
			cmd.Dir = filepath.Dir(file)
		}
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for %s/%s: %w\n%s", probePackage, goos, goarch, err, text)
	}
	return out, nil
}

// probe returns the path of the probe in ws, and puts it there if need be.
func (e *env) probe(t testing.TB, ws workspace.Workspace) string {
	t.Helper()
	if e.opts.ProbePath != "" {
		return e.opts.ProbePath
	}
	e.mu.Lock()
	path, ok := e.probes[ws]
	binary := e.opts.Probe
	e.mu.Unlock()
	if ok {
		return path
	}
	if !e.features.Has(workspace.FeatureFiles) {
		t.Fatal("the provider has no files: give Options.ProbePath, a probe that its workspaces have")
	}
	if binary == "" {
		var err error
		if binary, err = BuildProbe(t.Context(), e.outer.TempDir(), e.opts.GOOS, e.opts.GOARCH); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	ctx := e.context(t)
	wd, err := ws.WorkingDir(ctx)
	if err != nil {
		t.Fatalf("open the workspace: %v", err)
	}
	path = join(wd, probeName)
	if err := write(ctx, ws, path, data, workspace.WriteOptions{Mode: probeMode}); err != nil {
		t.Fatalf("put the probe into the workspace: %v", err)
	}
	res, err := ws.Run(ctx, workspace.Command{Args: []string{path, "exit", "0"}})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("run the probe, a %s/%s binary written to %s with mode %04o: %s", e.opts.GOOS, e.opts.GOARCH, path, probeMode, outcome(res, err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.Probe, e.probes[ws] = binary, path
	return path
}

// cmd is the probe's command in the shared workspace.
func (e *env) cmd(t testing.TB, args ...string) workspace.Command {
	t.Helper()
	return e.cmdIn(t, e.shared(t), args...)
}

func (e *env) cmdIn(t testing.TB, ws workspace.Workspace, args ...string) workspace.Command {
	t.Helper()
	return workspace.Command{Args: slices.Concat([]string{e.probe(t, ws)}, args)}
}

// answer is what Run and Wait return.
type answer struct {
	res *workspace.Result
	err error
}

// run runs a command in the shared workspace and expects an answer in time.
func (e *env) run(t testing.TB, cmd workspace.Command) (*workspace.Result, error) {
	t.Helper()
	return e.runIn(t, e.shared(t), cmd)
}

func (e *env) runIn(t testing.TB, ws workspace.Workspace, cmd workspace.Command) (*workspace.Result, error) {
	t.Helper()
	ctx := e.context(t)
	a := within(t, e.opts.limits.patience, describe(cmd), func() answer {
		res, err := ws.Run(ctx, cmd)
		return answer{res, err}
	})
	if a.err == nil && a.res == nil {
		t.Fatalf("%s: neither a result nor an error", describe(cmd))
	}
	return a.res, a.err
}

// wait is Wait with patience.
func (e *env) wait(t testing.TB, p workspace.Process, what string) (*workspace.Result, error) {
	t.Helper()
	a := within(t, e.opts.limits.patience, what, func() answer {
		res, err := p.Wait()
		return answer{res, err}
	})
	if a.err == nil && a.res == nil {
		t.Fatalf("%s: neither a result nor an error", what)
	}
	return a.res, a.err
}

// success runs a command and expects that it exits 0.
func (e *env) success(t testing.TB, cmd workspace.Command) *workspace.Result {
	t.Helper()
	res, err := e.run(t, cmd)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %s, want exit code 0", describe(cmd), outcome(res, err))
	}
	return res
}

// output is the probe's stdout.
func (e *env) output(t testing.TB, args ...string) string {
	t.Helper()
	return string(e.success(t, e.cmd(t, args...)).Stdout)
}

// exists asks a command, so that the provider's file calls need not be right.
func (e *env) exists(t testing.TB, path string) bool {
	t.Helper()
	return e.output(t, "exists", path) == "yes\n"
}

// pids is a file in which the probe's processes note themselves. Those that
// are left at the end of the check are killed.
func (e *env) pids(t testing.TB) string {
	t.Helper()
	pids := join(e.dir(t), "pids")
	reap := e.cmd(t, "reap", pids)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if _, err := e.ws.Run(ctx, reap); err != nil && !errors.Is(err, workspace.ErrUnavailable) {
			t.Errorf("stop what the check left: %v", err)
		}
	})
	return pids
}

// alive tells which of the processes noted in pids live.
func (e *env) alive(t testing.TB, pids string) []string {
	t.Helper()
	return strings.Fields(e.output(t, "alive", pids))
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// hexLines reads what the probe prints in hexadecimal, one a line.
func hexLines(t testing.TB, out []byte) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(string(out)) {
		b, err := hex.DecodeString(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("the probe's output %q: %v", line, err)
		}
		all = append(all, string(b))
	}
	return all
}

// describe is short, and shows no value of the environment.
func describe(cmd workspace.Command) string {
	if cmd.Script != "" {
		return fmt.Sprintf("script %.60q", cmd.Script)
	}
	args := slices.Clone(cmd.Args)
	if len(args) > 0 {
		args[0] = filepath.Base(args[0])
	}
	return fmt.Sprintf("%.100q", args)
}

// outcome describes what Run returned.
func outcome(res *workspace.Result, err error) string {
	if err != nil {
		return fmt.Sprintf("error %T: %v", err, err)
	}
	return fmt.Sprintf("exit code %d, stdout %.80q, stderr %.200q", res.ExitCode, res.Stdout, res.Stderr)
}

// lineWriter tells the lines of a command as they come.
type lineWriter struct {
	lines chan string
	rest  []byte
}

func newLineWriter() *lineWriter { return &lineWriter{lines: make(chan string, 1024)} }

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		i := slices.Index(w.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		select {
		case w.lines <- string(w.rest[:i]):
		default: // more lines than a check asks for
		}
		w.rest = w.rest[i+1:]
	}
}

// next returns the next line, or says so if none comes.
func (w *lineWriter) next(t testing.TB, e *env, what string) string {
	t.Helper()
	timer := time.NewTimer(e.opts.limits.patience)
	defer timer.Stop()
	select {
	case line := <-w.lines:
		return line
	case <-timer.C:
		t.Fatalf("%s: no answer after %v", what, e.opts.limits.patience)
		return ""
	}
}

// started starts a command that says ready, and returns when it has.
func (e *env) started(t testing.TB, ctx context.Context, ws workspace.Workspace, cmd workspace.Command) workspace.Process { //nolint:revive // t first, as everywhere here
	t.Helper()
	out := newLineWriter()
	cmd.Stdout = out
	p := within(t, e.opts.limits.patience, describe(cmd), func() any {
		p, err := ws.Start(ctx, cmd)
		if err != nil {
			return err
		}
		return p
	})
	if err, ok := p.(error); ok {
		t.Fatalf("start %s: %v", describe(cmd), err)
	}
	if line := out.next(t, e, describe(cmd)+" says ready"); line != "ready" {
		t.Fatalf("%s said %q, want ready", describe(cmd), line)
	}
	return p.(workspace.Process)
}
