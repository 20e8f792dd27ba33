package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/test/faults"
)

func TestShutdownDrains(t *testing.T) {
	tests := []struct {
		name  string
		drain time.Duration
		cut   bool
	}{
		{"in time", 20 * time.Second, false},
		{"too short", 200 * time.Millisecond, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := supervise(t, testConfig(t, faults.Good))
			inst := acquire(t, s)
			call := "sleep/1s"
			if test.cut {
				call = "sleep/1m"
			}
			type result struct {
				answer string
				err    error
			}
			called := make(chan result, 1)
			go func() {
				answer, err := do(t.Context(), inst, call)
				if err != nil {
					err = inst.Error("stat", "", err, true)
				}
				inst.Release()
				called <- result{answer, err}
			}()
			poll(t, "the call is under way", func() bool {
				answer, err := do(t.Context(), inst, "ping")
				return err == nil && answer == "pong"
			})
			ctx, cancel := context.WithTimeout(t.Context(), test.drain)
			defer cancel()
			err := s.Shutdown(ctx)
			got := <-called
			if test.cut {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("shutdown: %v", err)
				}
				if plug := asPluginError(t, got.err); !plug.MayHaveExecuted || plug.PID == 0 {
					t.Errorf("the call: %+v", plug)
				}
			} else if err != nil || got.err != nil || got.answer != "slept" {
				t.Errorf("shutdown: %v; the call: %+v", err, got)
			}
			if left := running(t, plugins.Path(faults.Good)); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
		})
	}
}

func TestShutdownOfAFrozenPlugin(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Good))
	inst := acquire(t, s)
	inst.Release()
	freeze(t, inst.PID())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	within(t, 4*time.Second, "a shutdown with 1 s", func() { // 2 s
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	if left := running(t, plugins.Path(faults.Good)); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

// A shutdown ends starts, waits for starts and waits for the backoff.
func TestShutdownEndsWaits(t *testing.T) {
	for _, name := range []string{faults.Silent, faults.Exit7} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, name)
			cfg.BackoffMax = time.Hour
			s := supervise(t, cfg)
			if name == faults.Exit7 {
				for range 2 {
					if _, err := s.Acquire(t.Context()); err == nil {
						t.Fatal("started")
					}
				}
				s.mu.Lock()
				s.backoff.until = time.Now().Add(time.Hour)
				s.mu.Unlock()
			}
			failed := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context())
				failed <- err
			}()
			if name == faults.Silent {
				poll(t, "the process", func() bool { return len(running(t, plugins.Path(name))) > 0 })
			}
			within(t, shortly, "the shutdown", func() {
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-failed; !errors.Is(err, fs.ErrClosed) {
					t.Errorf("who waited got %v", err)
				}
			})
			if left := running(t, plugins.Path(name)); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
		})
	}
}

func TestShutdownOfWhatNeverStarted(t *testing.T) {
	s := New(testConfig(t, faults.Good))
	done := make(chan error)
	for range 5 {
		go func() { done <- s.Shutdown(t.Context()) }()
	}
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := s.Status().State; got != Closed {
		t.Errorf("state %s", got)
	}
}

func TestReleaseCountsOnce(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Good))
	one, two := acquire(t, s), acquire(t, s)
	one.Release()
	one.Release()
	if got := s.Status().Calls; got != 1 {
		t.Errorf("%d calls in flight", got)
	}
	two.Release()
	if got := s.Status().Calls; got != 0 {
		t.Errorf("%d calls in flight", got)
	}
}

// A shutdown at any moment of a start leaves no process.
func TestShutdownRacesTheStart(t *testing.T) {
	for i := range 50 {
		s := New(testConfig(t, faults.Good))
		var caller sync.WaitGroup
		caller.Go(func() {
			inst, err := s.Acquire(t.Context())
			if err != nil {
				if !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
				return
			}
			inst.Release()
		})
		<-time.After(time.Duration(i) * 400 * time.Microsecond) // the moment is what varies
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		caller.Wait()
		if left := running(t, plugins.Path(faults.Good)); len(left) > 0 {
			t.Fatalf("round %d left running: %v", i, left)
		}
	}
}

// A start that succeeds in spite of the shutdown is ended by it.
func TestShutdownAwaitsAStartThatSucceeds(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	asked := make(chan struct{})
	var s *Supervisor
	cfg.Configure = func(context.Context, catalog.Binary, *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error) {
		close(asked)
		<-s.ctx.Done()
		return nil, nil // nothing to configure: no call that could still fail
	}
	s = New(cfg)
	acquired := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context())
		acquired <- err
	}()
	<-asked
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-acquired; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the caller got %v", err)
	}
	if left := running(t, plugins.Path(faults.Good)); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}
