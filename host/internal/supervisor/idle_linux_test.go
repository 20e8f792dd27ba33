package supervisor

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/test/faults"
)

func TestOneThatNobodyUsesIsStopped(t *testing.T) {
	cfg := install(faults.Good).config(t)
	cfg.IdleTimeout = 200 * time.Millisecond
	s := supervise(t, cfg)
	first := acquire(t, s)
	// A call that takes longer is none that is idle.
	if answer, err := do(t.Context(), first, "sleep/600ms"); err != nil || answer != "slept" || exited(first.Exited()) || leaving(first) {
		t.Errorf("%q, %v", answer, err)
	}
	first.Release()
	poll(t, "its end", func() bool { st := s.Status(); return st.State == Stopped && st.PID == 0 && st.Leaving == 0 })
	onlyRuns(t, faults.Good)
	if want := []string{events.Start, events.Started, events.IdleStop, events.Drained}; !slices.Equal(kinds(s), want) {
		t.Errorf("events %v, not %v", kinds(s), want)
	}
	second := acquire(t, s)
	if answer, err := do(t.Context(), second, "ping"); err != nil || answer != "pong" {
		t.Errorf("%q, %v", answer, err)
	}
	if st := s.Status(); st.Restarts != 0 || st.LastError != nil {
		t.Errorf("%+v", st)
	}
}

// TestNoCallFailsBecauseItsPluginWasIdle though it comes at the very moment.
func TestNoCallFailsBecauseItsPluginWasIdle(t *testing.T) {
	cfg := install(faults.Good).config(t)
	cfg.IdleTimeout = 5 * time.Millisecond
	s := supervise(t, cfg)
	const stops = 10
	stopped := func() int {
		return len(slices.DeleteFunc(kinds(s), func(k string) bool { return k != events.IdleStop }))
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for j := 0; stopped() < stops; j++ {
				inst, err := s.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if answer, err := do(t.Context(), inst, "ping"); err != nil || answer != "pong" {
					t.Errorf("%q, %v", answer, err)
				}
				inst.Release()
				// About as long as what makes one idle.
				time.Sleep(cfg.IdleTimeout + time.Duration((i+1)*j%9-2)*time.Millisecond)
			}
		})
	}
	wg.Wait()
	poll(t, "all to have left", func() bool { st := s.Status(); return st.State == Stopped && st.Leaving == 0 })
	onlyRuns(t, faults.Good)
}

func TestOneThatIsBeingSwappedIsNotIdle(t *testing.T) {
	bin := install(faults.Good)
	cfg := bin.config(t)
	cfg.IdleTimeout = 100 * time.Millisecond
	s := supervise(t, cfg)
	acquire(t, s).Release()
	bin.put(faults.Slow)
	reload(t, s) // takes longer
	if slices.Contains(kinds(s), events.IdleStop) {
		t.Errorf("%v", kinds(s))
	}
}
