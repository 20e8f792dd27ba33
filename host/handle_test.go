package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestL1_AHandleDoesNothingBeforeItsFirstOperation(t *testing.T) {
	p := &raw{configure: func(*berthv1.ConfigureRequest) error { t.Error("the plugin was started"); return nil }}
	h := newHost(t, p)
	ws, err := h.Workspace("raw", workspace.WithName("conv-42"), workspace.WithLabels(map[string]string{"a": "b"}), workspace.WithConfig(map[string]any{"image": "x"}))
	if err != nil {
		t.Fatal(err)
	}
	if ref, ok := ws.Ref(); ok {
		t.Errorf("a ref before anything was created: %s", ref)
	}
	attached, err := h.Attach(workspace.Ref{Provider: "raw", ID: "some"})
	if err != nil {
		t.Fatal(err)
	}
	if ref, ok := attached.Ref(); !ok || ref.String() != "raw/some" {
		t.Errorf("the ref of an attached handle: %s, %v", ref, ok)
	}
	host.ReadOnly(ws).FS(t.Context())
	if state := h.Providers()[0].State; state != "stopped" {
		t.Errorf("the plugin is %s", state)
	}
}

func TestInvalidRequestsStartNothing(t *testing.T) {
	p := &raw{configure: func(*berthv1.ConfigureRequest) error { t.Error("the plugin was started"); return nil }}
	h := newHost(t, p)
	ctx := t.Context()
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"empty path":       func() error { _, err := ws.Stat(ctx, ""); return err },
		"NUL in a path":    func() error { return ws.Remove(ctx, "a\x00b") },
		"NUL in a target":  func() error { return ws.Symlink(ctx, "a\x00", "b") },
		"negative offset":  func() error { _, err := ws.Open(ctx, "a", workspace.ReadOptions{Offset: -1}); return err },
		"a mode's type":    func() error { _, err := ws.Create(ctx, "a", workspace.WriteOptions{Mode: fs.ModeDir}); return err },
		"no command":       func() error { _, err := ws.Run(ctx, workspace.Command{}); return err },
		"negative timeout": func() error { _, err := ws.Run(ctx, workspace.Command{Script: "x", Timeout: -1}); return err },
		"unknown provider": func() error { _, err := h.Workspace("rawr"); return err },
		"malformed ref":    func() error { _, err := h.Attach(workspace.Ref{Provider: "raw", ID: "a/b"}); return err },
		"another's ref":    func() error { return h.Destroy(ctx, workspace.Ref{Provider: "other", ID: "a"}) },
		"a token as name":  func() error { _, err := h.Workspace("raw", workspace.WithName(workspace.NewToken())); return err },
		"a bad token":      func() error { _, err := h.Workspace("raw", workspace.WithToken("x")); return err },
		"a reserved label": func() error {
			_, err := h.Workspace("raw", workspace.WithLabels(map[string]string{"dev.berth.managed": "no"}))
			return err
		},
		"config to attach": func() error {
			_, err := h.Attach(workspace.Ref{Provider: "raw", ID: "a"}, workspace.WithConfig(map[string]any{"image": "x"}))
			return err
		},
		"a name to attach": func() error {
			_, err := h.Attach(workspace.Ref{Provider: "raw", ID: "a"}, workspace.WithName("n"))
			return err
		},
		"env of numbers": func() error {
			_, err := h.Workspace("raw", workspace.WithConfig(map[string]any{"env": map[string]any{"A": 1}}))
			return err
		},
		"negative age": func() error {
			for _, err := range h.List(ctx, "raw", workspace.ListOptions{OlderThan: -1}) {
				return err
			}
			return nil
		},
	} {
		if err := call(); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.Workspace("rawr"); err == nil || !strings.Contains(err.Error(), "configured: raw") {
		t.Errorf("an unknown provider does not tell the known ones: %v", err)
	}
}

func TestL2_ConcurrentFirstUseMakesOne(t *testing.T) {
	var created atomic.Int64
	p := &raw{}
	p.create = func(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		created.Add(1)
		return p.opened(req.GetToken(), stream)
	}
	ws := newWorkspace(t, p)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := ws.Stat(t.Context(), "f"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := created.Load(); n != 1 {
		t.Errorf("%d creates", n)
	}
}

func TestL2_ACancelledCallerLeavesAndTheCreateGoesOn(t *testing.T) {
	var created atomic.Int64
	asked, answer := make(chan string, 1), newGate(t)
	p := &raw{}
	p.create = func(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		created.Add(1)
		asked <- req.GetToken()
		select {
		case <-answer.ch:
		case <-stream.Context().Done():
			t.Error("the create was cancelled")
		}
		return p.opened(req.GetToken(), stream)
	}
	token := workspace.NewToken()
	ws, err := newHost(t, p).Workspace("raw", workspace.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := ws.Stat(ctx, "f"); left <- err }()
	if got := <-asked; got != token {
		t.Errorf("created under %s, not %s", got, token)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	answer.open()
	waitFor(t, "the ref of the create that went on", func() bool { _, ok := ws.Ref(); return ok })
	if _, err := ws.Stat(t.Context(), "f"); err != nil || created.Load() != 1 {
		t.Errorf("the next operation: %v, %d creates", err, created.Load())
	}
}

func TestL2_AFailedCreateFailsAllWaitersAndIsTriedAgainWithTheSameToken(t *testing.T) {
	var mu sync.Mutex
	var tokens []string
	waiting := newGate(t)
	p := &raw{}
	p.create = func(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		mu.Lock()
		tokens = append(tokens, req.GetToken())
		first := len(tokens) == 1
		mu.Unlock()
		if first {
			<-waiting.ch
			return wire.ToStatus(fmt.Errorf("no room: %w", workspace.ErrTransient))
		}
		return p.opened(req.GetToken(), stream)
	}
	ws := newWorkspace(t, p)
	errs := make(chan error, 5)
	for range cap(errs) {
		go func() { _, err := ws.Stat(t.Context(), "f"); errs <- err }()
	}
	waitFor(t, "the create", func() bool { mu.Lock(); defer mu.Unlock(); return len(tokens) == 1 })
	waiting.open()
	for range cap(errs) {
		// One that came after the failure made the second try, which succeeds.
		if err := <-errs; err != nil && (!errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "no room")) {
			t.Errorf("a waiter got %v", err)
		}
	}
	if _, err := ws.Stat(t.Context(), "f"); err != nil {
		t.Errorf("the next operation: %v", err)
	}
	if len(tokens) != 2 || tokens[0] != tokens[1] {
		t.Errorf("creates under %q", tokens)
	}
}

func TestL4_ANamedHandleIsCreatedUnderItsName(t *testing.T) {
	p := &raw{}
	ws, err := newHost(t, p).Workspace("raw", workspace.WithName("conv-42"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.WorkingDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ref, _ := ws.Ref(); ref.ID != "conv-42" {
		t.Errorf("ref %s", ref)
	}
}

func TestL8_TheIncarnationGoesWithEachCall(t *testing.T) {
	p := &raw{}
	p.stat = func(_ context.Context, req *berthv1.StatRequest) (*berthv1.StatResponse, error) {
		if got := string(req.GetWorkspace().GetIncarnation()); got != "first" {
			t.Errorf("incarnation %q", got)
		}
		return nil, wire.ToStatus(fmt.Errorf("replaced: %w", workspace.ErrUnavailable))
	}
	ws := newWorkspace(t, p)
	if _, err := ws.Stat(t.Context(), "f"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Error(err)
	}
}

func TestOpenRefusesNonsense(t *testing.T) {
	for name, opened := range map[string]*berthv1.Opened{
		"no id":                {WorkingDir: []byte("/")},
		"an id that is none":   {Id: "a/b", WorkingDir: []byte("/")},
		"another id":           {Id: "b", WorkingDir: []byte("/")},
		"a relative directory": {Id: "a", WorkingDir: []byte("work")},
		"an unclean directory": {Id: "a", WorkingDir: []byte("/a/../b")},
	} {
		t.Run(name, func(t *testing.T) {
			p := &raw{attach: func(_ *berthv1.AttachRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
				return stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: opened}})
			}}
			ws, err := newHost(t, p).Attach(workspace.Ref{Provider: "raw", ID: "a"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ws.WorkingDir(t.Context())
			var plug *workspace.PluginError
			if !errors.As(err, &plug) {
				t.Error(err)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		p := &raw{create: func(*berthv1.CreateRequest, grpc.ServerStreamingServer[berthv1.OpenResponse]) error { return nil }}
		_, err := newWorkspace(t, p).WorkingDir(t.Context())
		var plug *workspace.PluginError
		if !errors.As(err, &plug) || !plug.MayHaveExecuted {
			t.Error(err)
		}
	})
}

func TestOpenHasADeadline(t *testing.T) {
	p := &raw{create: func(_ *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	ws := newWorkspace(t, p, deadlines(50*time.Millisecond))
	_, err := ws.Stat(t.Context(), "f")
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || !plug.MayHaveExecuted || errors.Is(err, workspace.ErrTransient) {
		t.Error(err)
	}
}

func TestACallHasADeadlineAndIsNotMadeAgainAfterIt(t *testing.T) {
	p := &raw{
		stat: func(ctx context.Context, _ *berthv1.StatRequest) (*berthv1.StatResponse, error) {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the plugin was told of a deadline")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		mkdir: func(ctx context.Context, _ *berthv1.MkdirAllRequest) error { <-ctx.Done(); return ctx.Err() },
	}
	ws := newWorkspace(t, p, func(c *host.Config) {
		c.Deadlines.Read, c.Deadlines.Change = 50*time.Millisecond, 50*time.Millisecond
	})
	if _, err := ws.WorkingDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := p.calls.Load()
	var plug *workspace.PluginError
	if _, err := ws.Stat(t.Context(), "f"); !errors.As(err, &plug) {
		t.Error(err)
	}
	if n := p.calls.Load() - before; n != 1 {
		t.Errorf("%d calls", n)
	}
	if err := ws.MkdirAll(t.Context(), "d"); !errors.As(err, &plug) || !plug.MayHaveExecuted {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := ws.Stat(ctx, "f"); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &plug) {
		t.Errorf("the caller's own deadline: %v", err)
	}
}

func TestAfterCloseEveryCallFails(t *testing.T) {
	p := &raw{}
	h := newHost(t, p)
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Stat(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	fresh, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	for name, call := range map[string]func() error{
		"stat":    func() error { _, err := ws.Stat(t.Context(), "f"); return err },
		"run":     func() error { _, err := ws.Run(t.Context(), workspace.Command{Script: "true"}); return err },
		"write":   func() error { return ws.WriteFile(t.Context(), "f", nil) },
		"read":    func() error { _, err := ws.ReadFile(t.Context(), "f"); return err },
		"readdir": func() error { _, err := ws.ReadDir(t.Context(), "."); return err },
		"open":    func() error { _, err := fresh.WorkingDir(t.Context()); return err },
		"destroy": func() error { return h.Destroy(t.Context(), ref) },
		"check":   func() error { _, err := h.Check(t.Context(), "raw"); return err },
		"list": func() error {
			for _, err := range h.List(t.Context(), "raw", workspace.ListOptions{}) {
				return err
			}
			return nil
		},
	} {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
}

func TestShutdownWaitsForCallsInFlight(t *testing.T) {
	entered, answer := make(chan struct{}), newGate(t)
	p := &raw{mkdir: func(context.Context, *berthv1.MkdirAllRequest) error {
		close(entered)
		<-answer.ch
		return nil
	}}
	h := newHost(t, p)
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	made, closed := make(chan error, 1), make(chan error, 1)
	go func() { made <- ws.MkdirAll(t.Context(), "d") }()
	<-entered
	go func() { closed <- h.Shutdown(t.Context()) }()
	waitFor(t, "the shutdown", func() bool { _, err := ws.Stat(t.Context(), "f"); return errors.Is(err, fs.ErrClosed) })
	answer.open()
	if err := <-made; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestShutdownEndsWhatDoesNotEnd: a command that runs on, and one whose output
// nobody takes.
func TestShutdownEndsWhatDoesNotEnd(t *testing.T) {
	blocked := newGate(t)
	ws := func(f func(*berthv1.RunStart, runStream) error) (*host.Host, workspace.Process) {
		h := newHost(t, runner(f))
		ws, err := h.Workspace("raw")
		if err != nil {
			t.Fatal(err)
		}
		cmd := command()
		cmd.Stdout = writerFunc(func(p []byte) (int, error) { <-blocked.ch; return len(p), nil })
		p, err := ws.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		return h, p
	}
	expired, cancel := context.WithCancel(t.Context())
	cancel()

	h, endless := ws(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	})
	_ = h.Shutdown(expired) // may say that it did not wait
	var plug *workspace.PluginError
	if _, err := endless.Wait(); !errors.As(err, &plug) {
		t.Errorf("a command that ran on: %v", err)
	}

	h, over := ws(func(_ *berthv1.RunStart, stream runStream) error {
		return send(stream, started(), stdout(0, "x"), exited(0, 1, 0))
	})
	waitFor(t, "the plugin's outcome", func() bool { return h.Providers()[0].InFlight == 0 })
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := over.Wait(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a command whose output nobody takes: %v", err)
	}
}

func TestListAndDestroy(t *testing.T) {
	p := &raw{
		list: func(stream grpc.ServerStreamingServer[berthv1.ListResponse]) error {
			for _, id := range []string{"a", "b", "a"} {
				if err := stream.Send(&berthv1.ListResponse{Id: id, Name: "n-" + id, Labels: map[string]string{"k": "v"}, State: "running"}); err != nil {
					return err
				}
			}
			return nil
		},
		destroy: func(req *berthv1.DestroyRequest) error {
			if req.GetId() != "a" {
				return wire.ToStatus(fmt.Errorf("not ours: %w", workspace.ErrInvalid))
			}
			return nil
		},
	}
	h := newHost(t, p)
	var refs []string
	for info, err := range h.List(t.Context(), "raw", workspace.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, info.Ref.String()+" "+info.Name+" "+info.State)
	}
	if got := strings.Join(refs, ","); got != "raw/a n-a running,raw/b n-b running" {
		t.Error(got)
	}
	if err := h.Destroy(t.Context(), workspace.Ref{Provider: "raw", ID: "a"}); err != nil {
		t.Error(err)
	}
	if err := h.Destroy(t.Context(), workspace.Ref{Provider: "raw", ID: "b"}); !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "raw/b: destroy: not ours") {
		t.Error(err)
	}
	p.list = func(stream grpc.ServerStreamingServer[berthv1.ListResponse]) error {
		return stream.Send(&berthv1.ListResponse{Id: "../x"})
	}
	var plug *workspace.PluginError
	for _, err := range h.List(t.Context(), "raw", workspace.ListOptions{}) {
		if !errors.As(err, &plug) {
			t.Error(err)
		}
	}
}
