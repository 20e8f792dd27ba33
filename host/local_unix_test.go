//go:build unix

package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func newLocal(t testing.TB) (*host.Host, workspace.Workspace) {
	t.Helper()
	h := newProcesses(t, map[string]host.Provider{"local": {Config: map[string]any{"root": "./workspaces", "env": map[string]any{"CONFIGURED": "c"}}}})
	ws, err := h.Workspace("local", workspace.WithConfig(map[string]any{"env": map[string]string{"OF_THE_HANDLE": "h"}}))
	if err != nil {
		t.Fatal(err)
	}
	return h, ws
}

func TestLocal_CommandsAndFiles(t *testing.T) {
	t.Setenv("BERTH_TEST_SECRET", "s3cret")
	_, ws := newLocal(t)
	ctx := t.Context()
	cmd := workspace.Command{
		Script: `cat; printf '%s-%s-%s-%s' "$CONFIGURED" "$OF_THE_HANDLE" "$OWN" "$BERTH_TEST_SECRET"; echo oops >&2; exit 3`,
		Env:    map[string]string{"OWN": "o"}, Stdin: strings.NewReader("input "),
	}
	res, err := ws.Run(ctx, cmd)
	if err != nil || res.ExitCode != 3 || res.StdoutText() != "input c-h-o-" || res.StderrText() != "oops\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := ws.WriteFile(ctx, "a/b", []byte("x")); err != nil {
		t.Error(err)
	}
	res, err = ws.Run(ctx, workspace.Command{Args: []string{"cat", "b"}, Dir: "a"})
	if err != nil || res.StdoutText() != "x" {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = ws.Run(ctx, workspace.Command{Args: []string{"true"}, Dir: "none"})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a missing directory: %v", err)
	}
	if res, err := ws.Run(ctx, workspace.Command{Args: []string{"no-such-program"}}); err != nil || res.ExitCode != workspace.ExitNotFound {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestLocal_AnyBytes(t *testing.T) {
	_, ws := newLocal(t)
	ctx := t.Context()
	for _, name := range []string{"a\xffb", "-rf", "with\nnewline", "$(id)", " "} {
		if err := ws.WriteFile(ctx, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		res, err := ws.Run(ctx, workspace.Command{Args: []string{"/bin/sh", "-c", `cat -- "$1"; printf %s "$V"`, "sh", name}, Env: map[string]string{"V": name}})
		if err != nil || string(res.Stdout) != name+name {
			t.Errorf("%q: %+v, %v", name, res, err)
		}
		if err := ws.Symlink(ctx, name, "to "+name); err != nil {
			t.Error(err)
		}
		if target, err := ws.Readlink(ctx, "to "+name); err != nil || target != name {
			t.Errorf("%q: %q, %v", name, target, err)
		}
		if _, err := ws.Stat(ctx, name+"/none"); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%q: %v", name, err)
		}
	}
	infos, err := ws.ReadDir(ctx, ".")
	if err != nil || len(infos) != 10 {
		t.Errorf("%+v, %v", infos, err)
	}
}

func TestLocal_FS(t *testing.T) {
	_, ws := newLocal(t)
	ctx := t.Context()
	if _, err := ws.Run(ctx, workspace.Command{Script: `mkdir -p dir/sub; echo a > a.txt; echo b > dir/sub/b; ln -s ../dir dir/one; ln -s . dir/two; ln -s nowhere dangling`}); err != nil {
		t.Fatal(err)
	}
	walked := 0
	err := fs.WalkDir(ws.FS(ctx), ".", func(_ string, d fs.DirEntry, err error) error {
		if walked++; walked > 100 {
			return errors.New("the walk does not end")
		}
		return err
	})
	if err != nil || walked != 8 {
		t.Errorf("%d entries, %v", walked, err)
	}
	if err := ws.RemoveAll(ctx, "dangling"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(ws.FS(ctx), "a.txt", "dir/sub/b", "dir/one"); err != nil {
		t.Error(err)
	}
}

func TestLocal_ATimeoutStopsTheTree(t *testing.T) {
	_, ws := newLocal(t)
	_, err := ws.Run(t.Context(), workspace.Command{Script: `echo begun; (sleep 600; echo never) & echo $! > child; sleep 600`, Timeout: 500 * time.Millisecond})
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || string(timeout.Stdout) != "begun\n" || timeout.Survivors != "" {
		t.Fatal(err)
	}
	text, err := ws.ReadFile(t.Context(), "child")
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child's end", func() bool { return errors.Is(syscall.Kill(child, 0), syscall.ESRCH) })
}

func TestLocal_ACrashInMidRun(t *testing.T) {
	h, ws := newLocal(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{}, 1)
	p, err := ws.Start(ctx, workspace.Command{Script: "echo begun; sleep 600", Stdout: writerFunc(func(b []byte) (int, error) {
		begun <- struct{}{}
		return len(b), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	old := pid(t, h)
	at := time.Now()
	kill(t, h)
	_, err = p.Wait()
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || plug.PID != old || !strings.Contains(plug.ExitStatus, "killed") || !plug.MayHaveExecuted || plug.RunID != p.ID() || plug.Op != "run" {
		t.Errorf("%v", err)
	}
	if took := time.Since(at); took > 10*time.Second { // within a second, on a machine that is not loaded
		t.Errorf("took %v", took)
	}
	if err := p.Signal(ctx, workspace.SignalTerminate); !errors.As(err, &plug) {
		t.Errorf("a signal to it: %v", err)
	}
	if data, err := ws.ReadFile(ctx, "f"); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	if res, err := ws.Run(ctx, workspace.Command{Args: []string{"cat", "f"}}); err != nil || res.StdoutText() != "kept" {
		t.Errorf("%+v, %v", res, err)
	}
	if st := h.Providers()[0]; st.PID == old || st.Restarts != 1 {
		t.Errorf("%+v", st)
	}
}

// TestC10_APausedReaderOfACommandKeepsItsTimeout: much is pending, no other call
// is slowed, and the timeout fires though nobody reads.
func TestC10_APausedReaderOfACommandKeepsItsTimeout(t *testing.T) {
	_, ws := newLocal(t)
	ctx := t.Context()
	release := newGate(t)
	var taken atomic.Int64
	p, err := ws.Start(ctx, workspace.Command{
		Args: []string{"head", "-c", strconv.Itoa(64 << 20), "/dev/zero"}, Timeout: 3 * time.Second, OutputLimit: workspace.NoOutputLimit,
		Stdout: writerFunc(func(b []byte) (int, error) { taken.Add(int64(len(b))); <-release.ch; return len(b), nil }), Stderr: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its first output", func() bool { return taken.Load() > 0 })
	for range 20 {
		if _, err := ws.Stat(ctx, "."); err != nil {
			t.Error(err)
		}
	}
	if res, err := ws.Run(ctx, workspace.Command{Args: []string{"echo", "x"}}); err != nil || res.StdoutText() != "x\n" {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = p.Wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || timeout.Survivors != "" {
		t.Error(err)
	}
}

func TestLocal_C6_ACancelledCommandIsStopped(t *testing.T) {
	_, ws := newLocal(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, 1)
	p, err := ws.Start(ctx, workspace.Command{Script: "echo $$ > pid; echo begun; exec sleep 600", Stdout: writerFunc(func(b []byte) (int, error) {
		begun <- struct{}{}
		return len(b), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "did not confirm") {
		t.Error(err)
	}
	text, err := ws.ReadFile(t.Context(), "pid")
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its end", func() bool { return errors.Is(syscall.Kill(child, 0), syscall.ESRCH) })
}

func TestLocal_StreamsAreExact(t *testing.T) {
	_, ws := newLocal(t)
	ctx := t.Context()
	data := randomBytes(20 << 20)
	var out bytes.Buffer
	_, err := ws.Run(ctx, workspace.Command{
		Args: []string{"cat"}, Stdin: bytes.NewReader(data), Stdout: &out, Stderr: io.Discard, OutputLimit: workspace.NoOutputLimit,
	})
	if err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	if err := ws.WriteFile(ctx, "f", data); err != nil {
		t.Error(err)
	}
	if got, err := ws.ReadFile(ctx, "f"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = ws.Run(ctx, workspace.Command{Args: []string{"head", "-c", "2147483648", "/dev/zero"}})
	var limit *workspace.OutputLimitError
	if !errors.As(err, &limit) || limit.Limit != workspace.DefaultOutputLimit || len(limit.Stdout) != workspace.PartialOutput {
		t.Errorf("2 GiB of output: %.200v", err)
	}
}

func TestLocal_NoProcessOrFolderOutlivesTheHost(t *testing.T) {
	pluginDir(t) // built where it belongs
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	h, ws := newLocal(t)
	if _, err := ws.Run(t.Context(), workspace.Command{Args: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	plugin := pid(t, h)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	waitFor(t, "the plugin's end", func() bool { return errors.Is(syscall.Kill(plugin, 0), syscall.ESRCH) })
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
