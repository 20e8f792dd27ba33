package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/test/faults"
)

func sigkill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestTheOldOneIsKilledInMidSwap(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	old := acquire(t, s)
	bin.put(faults.Slow)
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload(t.Context()) }()
	poll(t, "the new one's process", func() bool { return len(childrenOf(t, faults.Slow)) == 1 })
	inFlight := make(chan error, 1)
	go func() { _, err := do(t.Context(), old, "sleep/1m"); inFlight <- err }()
	sigkill(t, old.PID())
	if err := <-inFlight; err == nil || !connectionLost(err) {
		t.Errorf("a call of the one that was killed: %v", err)
	}
	<-old.Exited()
	// The next call does not start a second one.
	next := acquire(t, s)
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
	if next.Describe().GetName() != faults.Slow {
		t.Errorf("%v", next.Describe())
	}
	onlyRuns(t, faults.Slow, next.PID())
	if st := s.Status(); st.State != Running || st.PID != next.PID() || st.Leaving != 0 || st.LastError == nil {
		t.Errorf("%+v", st)
	}
}

func TestTheNewOneIsKilledInMidSwap(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	old := acquire(t, s)
	bin.put(faults.Slow)
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload(t.Context()) }()
	var pids []string
	poll(t, "the new one's process", func() bool { pids = childrenOf(t, faults.Slow); return len(pids) == 1 })
	var pid int
	if _, err := fmt.Sscan(pids[0], &pid); err != nil {
		t.Fatal(err)
	}
	sigkill(t, pid)
	if plug := asPluginError(t, <-reloaded); !strings.Contains(plug.ExitStatus, "killed") {
		t.Errorf("%+v", plug)
	}
	if again := acquire(t, s); again.PID() != old.PID() {
		t.Error("the old one does not serve")
	}
}

func TestOneThatIsLeavingIsCutOffAtItsLimit(t *testing.T) {
	cfg := install(faults.Good).config(t)
	cfg.DrainLimit = 200 * time.Millisecond
	s := supervise(t, cfg)
	old := acquire(t, s)
	inFlight := make(chan error, 1)
	go func() { _, err := do(t.Context(), old, "sleep/1m"); inFlight <- err }()
	reload(t, s)
	cause := <-inFlight
	plug := old.Error("stat", "", cause, false)
	if !strings.Contains(plug.Reason, "swapped out") || !strings.Contains(plug.Reason, "200ms") || plug.PID != old.PID() {
		t.Errorf("%+v", plug)
	}
	next := acquire(t, s)
	if answer, err := do(t.Context(), next, "ping"); err != nil || answer != "pong" {
		t.Errorf("%q, %v", answer, err)
	}
	old.Release()
	poll(t, "its end", func() bool { return s.Status().Leaving == 0 })
	if st := s.Status(); st.State != Running || st.LastError != nil || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
	if !hasEvent(s, events.DrainCut, "200ms") {
		t.Errorf("%+v", s.cfg.Events.List())
	}
}

func TestADeathOfOneThatIsLeavingSaysNothingOfTheNewOne(t *testing.T) {
	s := supervise(t, install(faults.Good).config(t))
	old := acquire(t, s)
	reload(t, s)
	next := acquire(t, s)
	if _, err := do(t.Context(), old, "exit/9"); err == nil {
		t.Fatal("it did not die")
	}
	poll(t, "its end", func() bool { return s.Status().Leaving == 0 })
	if st := s.Status(); st.State != Running || st.PID != next.PID() || st.LastError != nil || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
	s.mu.Lock()
	deaths := s.backoff.deaths
	s.mu.Unlock()
	if deaths != 0 || !hasEvent(s, events.Died, "it was leaving") {
		t.Errorf("%d deaths, %+v", deaths, s.cfg.Events.List())
	}
}

func TestOneThatHangsWhileItIsLeavingIsKilled(t *testing.T) {
	cfg := install(faults.Good).config(t)
	cfg.LivenessInterval = 200 * time.Millisecond
	s := supervise(t, cfg)
	old := acquire(t, s)
	reload(t, s)
	go func() { _, _ = do(t.Context(), old, "freeze") }()
	poll(t, "its end", func() bool { return exited(old.Exited()) && s.Status().Leaving == 0 })
	if st := s.Status(); st.State != Running || st.LastError != nil || !hasEvent(s, events.Killed, "health check") {
		t.Errorf("%+v, %+v", st, s.cfg.Events.List())
	}
}

func TestShutdownInMidSwap(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	first := acquire(t, s)
	reload(t, s) // the first is leaving
	second := acquire(t, s)
	bin.put(faults.Silent)
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload(t.Context()) }()
	poll(t, "the new one's process", func() bool { return len(childrenOf(t, faults.Silent)) == 1 })
	answers := make(chan error, 2)
	for _, inst := range []*Instance{first, second} {
		go func() {
			_, err := do(t.Context(), inst, "sleep/500ms")
			inst.Release()
			answers <- err
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("a call that was to be waited for: %v", err)
		}
	}
	if err := <-reloaded; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the swap: %v", err)
	}
	if err := s.Reload(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a swap after it: %v", err)
	}
	for _, name := range []string{faults.Good, faults.Silent} {
		if pids := childrenOf(t, name); len(pids) > 0 {
			t.Errorf("%s: %v are left", name, pids)
		}
	}
	if st := s.Status(); st.State != Closed || st.Leaving != 0 {
		t.Errorf("%+v", st)
	}
}

// TestShutdownCutsOffWhatIsLeaving when its own time is over.
func TestShutdownCutsOffWhatIsLeaving(t *testing.T) {
	s := supervise(t, install(faults.Good).config(t))
	first := acquire(t, s)
	reload(t, s)
	inFlight := make(chan error, 1)
	go func() { _, err := do(t.Context(), first, "sleep/1m"); inFlight <- err }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	within(t, shortly, "the shutdown", func() {
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	if err := <-inFlight; err == nil {
		t.Error("it was not cut off")
	}
	if pids := childrenOf(t, faults.Good); len(pids) > 0 {
		t.Errorf("%v are left", pids)
	}
}
