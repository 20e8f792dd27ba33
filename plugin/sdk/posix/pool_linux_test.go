package posix

import (
	"context"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
)

// TestCommandThatEndsBeforeItsStartReturns is of supervisors that are done so
// soon, and let go as more than are kept, that the start finds them gone: the
// command ran all the same.
func TestCommandThatEndsBeforeItsStartReturns(t *testing.T) {
	ws, err := Open(Config{Dir: t.TempDir(), ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	// Whatever is idle stays so, so that who comes back is one too many.
	pool := &supervisors
	fillers := make([]*helper, maxIdle)
	for i := range fillers {
		fillers[i], _ = fakeSupervisor(t, pool, func() {})
	}
	for range 2000 {
		h, ended := fakeSupervisor(t, pool, func() {})
		pool.mu.Lock()
		pool.idle = append(append([]*helper(nil), fillers...), h)
		pool.mu.Unlock()
		p, err := ws.Start(t.Context(), sdk.Command{Args: []string{"true"}})
		if err != nil {
			t.Fatalf("a command that ran: %v", err)
		}
		if code, err := p.Wait(); err != nil || code != 7 {
			t.Fatalf("Wait: %d, %v", code, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		ended.Wait()
	}
}

// TestCancelledStartLeavesTheNextCommandAlone is of one that is cancelled when its
// command has ended and its supervisor runs the next.
func TestCancelledStartLeavesTheNextCommandAlone(t *testing.T) {
	ws, err := Open(Config{Dir: t.TempDir(), ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	pool := &supervisors
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		h, ended := fakeSupervisor(t, pool, cancel)
		pool.mu.Lock()
		pool.idle = []*helper{h}
		pool.mu.Unlock()
		var first sync.WaitGroup
		first.Go(func() {
			if p, err := ws.Start(ctx, sdk.Command{Args: []string{"true"}}); err == nil {
				_ = p.Close()
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("the first command: %v", err)
			}
		})
		<-ctx.Done()
		for again := false; !again; {
			select {
			case <-h.done:
				again = true
			default:
				pool.mu.Lock()
				again = len(pool.idle) > 0
				pool.mu.Unlock()
			}
		}
		select {
		case <-h.done: // cancelled in time
		default:
			p, err := ws.Start(t.Context(), sdk.Command{Args: []string{"true"}})
			if err != nil {
				t.Fatalf("the next command: %v", err)
			}
			if _, err := p.Wait(); err != nil { // 7, or 0 if h was let go meanwhile
				t.Fatalf("the next command: %v", err)
			}
			_ = p.Close()
		}
		first.Wait()
		h.hangUp()
		ended.Wait()
	}
}

// fakeSupervisor is one in this process, whose commands end at once with 7. It
// ends when it is hung up on. It calls started before it tells that one is.
func fakeSupervisor(t *testing.T, pool *pool, started func()) (*helper, *sync.WaitGroup) {
	t.Helper()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	other, err := newConn(fd)
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{conn: ours, pool: pool, done: make(chan struct{})}
	pool.mu.Lock()
	if pool.all == nil {
		pool.all = map[*helper]struct{}{}
	}
	pool.all[h] = struct{}{}
	pool.mu.Unlock()
	ended := &sync.WaitGroup{}
	ended.Go(h.listen)
	ended.Go(func() {
		defer other.close()
		_ = other.send(message{kind: kindReady})
		for {
			m, err := other.receive()
			if err != nil {
				return
			}
			closeAll(m.fds)
			switch m.kind {
			case kindStart:
				started()
				_ = other.send(message{kind: kindStarted})
				_ = other.send(message{kind: kindExited, num: 7})
			case kindStop: // nothing is left of a command that ended
				_ = other.send(message{kind: kindStopped})
			case kindRelease:
				_ = other.send(message{kind: kindFree})
			}
		}
	})
	return h, ended
}
