package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func openFake(t testing.TB, options guest.Options) *guest.Workspace {
	t.Helper()
	ws, err := guest.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return ws
}

// call makes one call as the SDK's server does.
func call(ctx context.Context, ws *guest.Workspace) error {
	conn, err := ws.BerthRelay(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Client.Stat(ctx, &berthv1.StatRequest{Workspace: conn.Key, Path: []byte("f")}); err != nil {
		return conn.Explain(ctx, err)
	}
	return nil
}

func TestAWorkspaceHasOneConnection(t *testing.T) {
	f := startFake(t, nil)
	ws := openFake(t, guest.Options{Dial: f.dial})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := call(t.Context(), ws); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := f.dialed(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if ws.WorkingDir() != "/work" || !slices.Equal(ws.Announce(), []workspace.Feature{"commands", "files"}) {
		t.Errorf("%s %v", ws.WorkingDir(), ws.Announce())
	}
}

// TestABrokenConnectionIsMadeAgain, once for all who need it.
func TestABrokenConnectionIsMadeAgain(t *testing.T) {
	f := startFake(t, nil)
	ws := openFake(t, guest.Options{Dial: f.dial})
	for round := 2; round < 5; round++ {
		f.cut()
		// One that is not yet known to be broken fails the call, and is explained.
		eventually(t, "a call gets through", func() bool {
			err := call(t.Context(), ws)
			if err != nil && !errors.Is(err, workspace.ErrTransient) {
				t.Fatal(err)
			}
			return err == nil
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := call(t.Context(), ws); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := f.dialed(); n != round {
			t.Errorf("%d connections after %d cuts", n, round-1)
		}
	}
}

// TestOneConnectionIsMadeForAll has 50 calls before there is one.
func TestOneConnectionIsMadeForAll(t *testing.T) {
	f := startFake(t, nil)
	var waiting atomic.Int64
	hold, held := make(chan struct{}), make(chan struct{})
	first := true
	ws := openFake(t, guest.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		if !first {
			close(held)
			<-hold
		}
		first = false
		return f.dial(ctx)
	}})
	conn, err := ws.BerthRelay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.cut()
	if err := conn.Explain(t.Context(), errors.New("cut")); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("explained as %v", err)
	}
	conn.Release()
	conn.Release() // harmless
	var all sync.WaitGroup
	gone, leave := context.WithCancelCause(t.Context())
	left := errors.New("left")
	all.Go(func() { // one that stays has begun it
		if err := call(t.Context(), ws); err != nil {
			t.Error(err)
		}
	})
	<-held
	for i := range 50 {
		all.Go(func() {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = gone
			}
			waiting.Add(1)
			err := call(ctx, ws)
			if i%2 == 1 && !errors.Is(err, left) || i%2 == 0 && err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	eventually(t, "all calls wait", func() bool { return waiting.Load() == 50 })
	leave(left)
	close(hold)
	all.Wait()
	if n := f.dialed(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestTheLastToLeaveEndsTheConnecting has a Dial that only its context ends.
func TestTheLastToLeaveEndsTheConnecting(t *testing.T) {
	ended := make(chan struct{})
	begun := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := guest.Open(ctx, guest.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it goes on")
	}
}

func TestExplainSaysWhatABreakMeans(t *testing.T) {
	f := startFake(t, nil)
	gone := fmt.Errorf("container x was removed: %w", workspace.ErrUnavailable)
	refuse := errors.New("no such exec")
	var down atomic.Bool
	ws := openFake(t, guest.Options{
		Dial: func(ctx context.Context) (net.Conn, error) {
			if down.Load() {
				return nil, refuse
			}
			return f.dial(ctx)
		},
		Explain: func(_ context.Context, err error) error {
			if errors.Is(err, refuse) {
				return gone
			}
			return nil
		},
	})
	down.Store(true)
	f.cut()
	eventually(t, "the workspace is known to be gone", func() bool {
		err := call(t.Context(), ws)
		if err == nil || !errors.Is(err, workspace.ErrTransient) && !errors.Is(err, gone) {
			t.Fatalf("%v", err)
		}
		return errors.Is(err, gone)
	})
	down.Store(false)
	if err := call(t.Context(), ws); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// TestAPanicOfTheProviderIsAnError is of one on no call's own goroutine, where it
// would end the process.
func TestAPanicOfTheProviderIsAnError(t *testing.T) {
	for name, options := range map[string]guest.Options{
		"Dial": {Dial: func(context.Context) (net.Conn, error) { panic("oops") }},
		"Explain": {
			Dial:    func(context.Context) (net.Conn, error) { return nil, errors.New("no") },
			Explain: func(context.Context, error) error { panic("oops") },
		},
	} {
		if _, err := guest.Open(t.Context(), options); err == nil || !strings.Contains(err.Error(), "panic in the provider: oops") || !errors.Is(err, workspace.ErrTransient) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAConnectionThatBreaksAtOnceIsMadeAgain for those who wait for it, but not for
// ever.
func TestAConnectionThatBreaksAtOnceIsMadeAgain(t *testing.T) {
	for _, test := range []struct {
		breaks, dials int64
		err           error
	}{{0, 1, nil}, {2, 3, nil}, {100, 3, guest.ErrBroken}} {
		f := startFake(t, nil)
		var dials atomic.Int64
		ws, err := guest.Open(t.Context(), guest.Options{Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := f.dial(ctx)
			if dials.Add(1) <= test.breaks {
				err = errors.Join(err, conn.Close())
			}
			return conn, err
		}})
		if !errors.Is(err, test.err) || test.err != nil && !errors.Is(err, workspace.ErrTransient) || dials.Load() != test.dials {
			t.Errorf("%d breaks: %v after %d dials", test.breaks, err, dials.Load())
		}
		if err == nil {
			err = ws.Close()
		}
		if err != nil && test.err == nil {
			t.Error(err)
		}
	}
}

func TestCheckRefusesAConnection(t *testing.T) {
	f := startFake(t, nil)
	another := errors.New("another digest")
	_, err := guest.Open(t.Context(), guest.Options{Dial: f.dial, Check: func(_ context.Context, h guest.Hello) error {
		if h.Version != "fake" {
			t.Errorf("%+v", h)
		}
		return fmt.Errorf("%w: %w", another, workspace.ErrUnavailable)
	}})
	if !errors.Is(err, another) {
		t.Errorf("%v", err)
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	f := startFake(t, nil)
	ws := openFake(t, guest.Options{Dial: f.dial, IdleTimeout: 50 * time.Millisecond})
	conn, err := ws.BerthRelay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // longer than it may be idle: a use keeps it
	if _, err := conn.Client.Stat(t.Context(), &berthv1.StatRequest{Workspace: conn.Key}); err != nil {
		t.Errorf("while it is used: %v", err)
	}
	last := f.conns[len(f.conns)-1]
	conn.Release()
	eventually(t, "it is closed", func() bool {
		return errors.Is(last.SetDeadline(time.Time{}), net.ErrClosed)
	})
	before := f.dialed()
	if err := call(t.Context(), ws); err != nil || f.dialed() != before+1 {
		t.Errorf("after that: %v, %d connections, then %d", err, before, f.dialed())
	}
}

func TestAClosedWorkspaceConnectsNoMore(t *testing.T) {
	f := startFake(t, nil)
	ws := openFake(t, guest.Options{Dial: f.dial})
	conn, err := ws.BerthRelay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ws.Close(), ws.Close()); err != nil {
		t.Error(err)
	}
	if _, err := conn.Client.Stat(t.Context(), &berthv1.StatRequest{Workspace: conn.Key}); err == nil {
		t.Error("its connection is still used")
	}
	conn.Release()
	if err := call(t.Context(), ws); !errors.Is(err, fs.ErrClosed) || f.dialed() != 1 {
		t.Errorf("%v, %d connections", err, f.dialed())
	}
}
