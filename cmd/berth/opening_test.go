package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// slowProvider makes a workspace at once, and tells of it when it is released.
type slowProvider struct {
	sdk.Provider
	made    chan struct{}
	release chan struct{}

	destroyErr error // what a Destroy fails with, if it is to fail

	mu                 sync.Mutex
	created, destroyed []string
}

func (p *slowProvider) Destroy(ctx context.Context, id string) error {
	p.mu.Lock()
	p.destroyed = append(p.destroyed, id)
	p.mu.Unlock()
	if p.destroyErr != nil {
		return p.destroyErr
	}
	return p.Provider.Destroy(ctx, id)
}

func (p *slowProvider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	ws, err := p.Provider.Create(ctx, req)
	p.mu.Lock()
	p.created = append(p.created, ws.ID())
	p.mu.Unlock()
	close(p.made)
	<-p.release
	return ws, err
}

// newTestApp returns an app whose one provider is served in this process, and
// the files that its outputs go to.
func newTestApp(t *testing.T, plugin hosttest.Registrar) (a *app, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	out, errs := open("stdout"), open("stderr")
	a = newApp(open("stdin"), out, errs)
	a.host = hosttest.New(t, map[string]hosttest.Registrar{"notes": plugin})
	return a, out.Name(), errs.Name()
}

func newSlowApp(t *testing.T) (*app, *slowProvider, string) {
	t.Helper()
	slow := &slowProvider{made: make(chan struct{}), release: make(chan struct{})}
	plugin := state.Plugin("test")
	newState := plugin.New
	plugin.New = func(ctx context.Context, config state.Config, env sdk.Env) (_ sdk.Provider, err error) {
		slow.Provider, err = newState(ctx, config, env)
		return slow, err
	}
	a, _, stderr := newTestApp(t, plugin)
	return a, slow, stderr
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Whoever is interrupted while a workspace is made would not know its ref, and
// nobody could destroy it.
func TestTheRefOfAnInterruptedMakingIsTold(t *testing.T) {
	for _, toFile := range []bool{false, true} {
		a, slow, stderr := newSlowApp(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-slow.made
			cancel()
			close(slow.release)
		}()
		var flags openFlags
		if toFile {
			flags.refFile = filepath.Join(t.TempDir(), "ref")
		}
		err := a.runIn(ctx, "notes", &flags, []workspace.Option{workspace.WithName("n")}, workspace.Command{Args: []string{"x"}}, false)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		told := read(t, stderr)
		if toFile {
			if told != "" {
				t.Errorf("stderr holds %q", told)
			}
			told = read(t, flags.refFile)
		}
		if !strings.Contains(told, "notes/n\n") {
			t.Errorf("the ref is not told, but %q", told)
		}
	}
}

func TestAnInterruptedMakingIsDestroyedWithRm(t *testing.T) {
	a, slow, stderr := newSlowApp(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.made
		cancel()
		close(slow.release)
	}()
	flags := openFlags{refFile: filepath.Join(t.TempDir(), "ref")}
	err := a.runIn(ctx, "notes", &flags, nil, workspace.Command{Args: []string{"x"}}, true)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if len(slow.created) != 1 || !slices.Equal(slow.created, slow.destroyed) {
		t.Errorf("made %q, destroyed %q", slow.created, slow.destroyed)
	}
	entries, err := os.ReadDir(filepath.Dir(flags.refFile))
	if err != nil || len(entries) != 0 {
		t.Errorf("the ref's folder holds %v, %v", entries, err)
	}
	if told := read(t, stderr); told != "" {
		t.Errorf("stderr holds %q", told)
	}
}

// What is still there costs somebody, whatever else went wrong.
func TestAWorkspaceThatCannotBeDestroyedIsTold(t *testing.T) {
	a, slow, stderr := newSlowApp(t)
	slow.destroyErr = errors.New("the service is down")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-slow.made
		cancel(&interruption{syscall.SIGINT})
		close(slow.release)
	}()
	err := a.runIn(ctx, "notes", &openFlags{}, []workspace.Option{workspace.WithName("n")}, workspace.Command{Args: []string{"x"}}, true)
	if code := a.exit(ctx, err); code != 130 {
		t.Errorf("exit code %d", code)
	}
	told := read(t, stderr)
	if !strings.Contains(told, "destroying notes/n, which may be still there: ") || !strings.Contains(told, "the service is down") {
		t.Errorf("stderr holds %q", told)
	}
}

func TestWhatFailsInClearingUpLeavesTheExitCode(t *testing.T) {
	clearing := errors.New("it is still there")
	for _, c := range []struct {
		err  error
		code int
	}{{nil, exitFailure}, {&codeError{3}, 3}, {&workspace.TimeoutError{}, exitTimeout}} {
		a, _, stderr := newTestApp(t, nil)
		if code := a.exit(t.Context(), a.also(c.err, clearing)); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
		if told := read(t, stderr); strings.Count(told, clearing.Error()) != 1 {
			t.Errorf("%v: stderr holds %q", c.err, told)
		}
	}
}
