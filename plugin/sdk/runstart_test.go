package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestStartThatHangsDelaysNoTimeout(t *testing.T) {
	t.Parallel()
	process := newFakeProcess()
	release := make(chan struct{})
	ws := starting(nil)
	ws.start = func(context.Context, Command) (Process, error) { <-release; return process, nil }
	client := serveProvider(t, providing(ws))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(10 * time.Millisecond)})
	_, err := call.wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !strings.Contains(timeout.Survivors, "still starting") || call.started {
		t.Errorf("error %#v", err)
	}
	close(release)
	eventually(t, "what it started in the end is stopped and closed", func() bool {
		process.mu.Lock()
		defer process.mu.Unlock()
		return len(process.stops) == 1 && process.closed == 1
	})
}

func TestStartHeedsCancellation(t *testing.T) {
	ws := starting(nil)
	ws.start = func(ctx context.Context, _ Command) (Process, error) { <-ctx.Done(); return nil, ctx.Err() }
	client := serveProvider(t, providing(ws))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(10 * time.Millisecond)})
	_, err := call.wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) {
		t.Errorf("error %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	for _, test := range []struct {
		name, dir string
		err       error
		check     func(error) bool
	}{
		{"missing dir", "sub", &fs.PathError{Op: "chdir", Path: "/work/sub", Err: syscall.ENOENT}, func(err error) bool {
			var path *fs.PathError
			return errors.As(err, &path) && path.Op == "chdir" && path.Path == "sub" && errors.Is(err, fs.ErrNotExist)
		}},
		{"another path", "sub", &fs.PathError{Op: "fork", Path: "/bin/x", Err: syscall.EAGAIN}, func(err error) bool {
			var path *fs.PathError
			return errors.As(err, &path) && path.Path == "/bin/x"
		}},
		{"too big", "", fmt.Errorf("%w: %w", workspace.ErrInvalid, syscall.E2BIG), func(err error) bool {
			return errors.Is(err, workspace.ErrInvalid) && errors.Is(err, syscall.E2BIG)
		}},
		{"transient", "", workspace.ErrTransient, func(err error) bool { return errors.Is(err, workspace.ErrTransient) }},
	} {
		ws := starting(nil)
		ws.start = func(context.Context, Command) (Process, error) { return nil, test.err }
		call := startRun(t, t.Context(), serveProvider(t, providing(ws)), &berthv1.RunStart{Dir: []byte(test.dir)})
		if _, err := call.wait(); err == nil || !test.check(err) {
			t.Errorf("%s: error %#v", test.name, err)
		}
		if call.started {
			t.Errorf("%s: it says that it started", test.name)
		}
	}
}

func TestWaitErrors(t *testing.T) {
	for name, test := range map[string]struct{ err, want error }{
		"gone":    {fmt.Errorf("the pod is gone: %w", workspace.ErrUnavailable), workspace.ErrUnavailable},
		"unknown": {errors.New("the stream broke"), nil},
		"lost":    {os.ErrProcessDone, os.ErrProcessDone},
	} {
		process := newFakeProcess()
		process.exit(0, test.err)
		_, err := startRun(t, t.Context(), serveProvider(t, providing(starting(process))), &berthv1.RunStart{}).wait()
		if err == nil || !strings.Contains(err.Error(), test.err.Error()) || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: error %v", name, err)
		}
		eventually(t, "its end is made sure of", func() bool { return fmt.Sprint(process.stopped()) == "[0s]" })
	}
}

func TestExitCodeThatIsNone(t *testing.T) {
	process := newFakeProcess()
	process.exit(-1, nil)
	_, err := startRun(t, t.Context(), serveProvider(t, providing(starting(process))), &berthv1.RunStart{}).wait()
	if err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("error %v", err)
	}
}

func TestOutputThatNeverEndsIsReported(t *testing.T) {
	t.Parallel()
	process := newFakeProcess()
	process.code = 4
	close(process.exited) // and its outputs stay open
	_, err := startRun(t, t.Context(), serveProvider(t, providing(starting(process))), &berthv1.RunStart{}).wait()
	if err == nil || !strings.Contains(err.Error(), "exited with 4") || !strings.Contains(err.Error(), "not ended its output") {
		t.Errorf("error %v", err)
	}
}

// misbehaving overrides one method of a process.
type misbehaving struct {
	*fakeProcess
	stdout io.Reader
	do     map[string]func()
}

func (p misbehaving) call(name string) {
	if do := p.do[name]; do != nil {
		do()
	}
}

func (p misbehaving) Stdin() io.WriteCloser { p.call("Stdin"); return p.fakeProcess.Stdin() }
func (p misbehaving) Wait() (int, error)    { p.call("Wait"); return p.fakeProcess.Wait() }
func (p misbehaving) Close() error          { p.call("Close"); return p.fakeProcess.Close() }
func (p misbehaving) Stop(grace time.Duration) string {
	p.call("Stop")
	return p.fakeProcess.Stop(grace)
}

func (p misbehaving) Stdout() io.Reader {
	p.call("Stdout")
	if p.stdout != nil {
		return p.stdout
	}
	return p.fakeProcess.Stdout()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestProcessThatMisbehaves(t *testing.T) {
	boom := func() { panic("boom") }
	for name, test := range map[string]struct {
		do      map[string]func()
		stdout  io.Reader
		text    string
		exits   bool // it ends by itself
		stopped bool
	}{
		"Wait panics":   {do: map[string]func(){"Wait": boom}, text: "panic in Wait: boom", stopped: true},
		"Stdout panics": {do: map[string]func(){"Stdout": boom}, text: "panic in", stopped: true},
		"Stdin panics":  {do: map[string]func(){"Stdin": boom}, text: "panic in Run: boom", stopped: true},
		"Close panics":  {do: map[string]func(){"Close": boom}, exits: true},
		"reads too much": {
			stdout: readerFunc(func(p []byte) (int, error) { return len(p) + 1, nil }),
			text:   "reading its stdout: the provider's reader gave", stopped: true,
		},
		"reads less than nothing": {
			stdout: readerFunc(func([]byte) (int, error) { return -1, nil }),
			text:   "reading its stdout: the provider's reader gave", stopped: true,
		},
		"reads nothing for ever": {
			stdout: readerFunc(func([]byte) (int, error) { return 0, nil }),
			text:   io.ErrNoProgress.Error(), stopped: true,
		},
		"output breaks": {
			stdout: readerFunc(func([]byte) (int, error) { return 0, errors.New("connection reset") }),
			text:   "reading its stdout: connection reset", stopped: true,
		},
		"read panics": {
			stdout: readerFunc(func([]byte) (int, error) { panic("boom") }),
			text:   "panic in reading stdout", stopped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			process := newFakeProcess()
			if test.exits {
				process.exit(6, nil)
			}
			p := quiet(pluginOf(providing(starting(misbehaving{process, test.stdout, test.do}))))
			client := connect(t, p)
			if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
				t.Fatal(err)
			}
			call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
			code, err := call.wait()
			if test.text == "" && (err != nil || code != 6) || test.text != "" && (err == nil || !strings.Contains(err.Error(), test.text)) {
				t.Errorf("code %d, error %v", code, err)
			}
			if test.stopped {
				eventually(t, "it is stopped", func() bool { return len(process.stopped()) > 0 })
			}
			process.exit(0, nil)
		})
	}
}

func TestStartThatMisbehaves(t *testing.T) {
	for name, start := range map[string]func(context.Context, Command) (Process, error){
		"nothing":   func(context.Context, Command) (Process, error) { return nil, nil },
		"typed nil": func(context.Context, Command) (Process, error) { return (*fakeProcess)(nil), nil },
		"panic":     func(context.Context, Command) (Process, error) { panic("boom") },
	} {
		ws := starting(nil)
		ws.start = start
		client := connect(t, quiet(pluginOf(providing(ws))))
		if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		call := startRun(t, t.Context(), client, &berthv1.RunStart{})
		if _, err := call.wait(); err == nil || call.started {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
