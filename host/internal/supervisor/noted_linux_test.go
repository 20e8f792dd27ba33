package supervisor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/test/faults"
)

// superviseLate is of a plugin that may end once, and whose last words are not read
// to their end before the test's: nobody waits for them for long.
func superviseLate(t *testing.T) (s *Supervisor, kinds func() []string) {
	t.Helper()
	release := make(chan struct{})
	cfg := testConfig(t, faults.Good)
	cfg.Restarts, cfg.Events = 1, events.New()
	cfg.Redact = func(text string) string {
		if strings.Contains(text, "last words") {
			<-release
		}
		return text
	}
	s = supervise(t, cfg)
	t.Cleanup(func() { close(release) }) // before the shutdown, which does wait
	return s, func() (list []string) {
		for _, e := range cfg.Events.List() {
			list = append(list, e.Kind)
		}
		return list
	}
}

// endItself has a plugin end.
func endItself(t *testing.T, s *Supervisor) {
	t.Helper()
	inst := acquire(t, s)
	if _, err := do(t.Context(), inst, "exit/7"); err == nil {
		t.Fatal("it did not end")
	}
	<-inst.Exited()
	inst.Release()
}

// TestTheNextStartComesAfterTheEnd is noted: whoever asks while the last words of a
// plugin are still read gets around neither the pause before a start nor the
// quarantine, which are told by the ends before.
func TestTheNextStartComesAfterTheEnd(t *testing.T) {
	s, kinds := superviseLate(t)
	for range 2 {
		endItself(t, s)
	}
	inst, err := s.Acquire(t.Context())
	if err == nil {
		inst.Release()
	}
	var q *QuarantineError
	if !errors.As(err, &q) || q.Deaths != 2 {
		t.Errorf("after two ends, of which one is allowed: %v", err)
	}
	want := []string{events.Start, events.Started, events.Died, events.Start, events.Started, events.Died, events.Quarantined}
	if got := kinds(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAnEndThatIsNotedLate, when a reload has put another plugin in the place of the
// one that ended, puts nothing that runs into quarantine.
func TestAnEndThatIsNotedLate(t *testing.T) {
	s, kinds := superviseLate(t)
	for range 2 {
		endItself(t, s)
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	poll(t, "the second end is noted", func() bool {
		died := 0
		for _, kind := range kinds() {
			if kind == events.Died {
				died++
			}
		}
		return died == 2
	})
	if st := s.Status(); st.State != Running || st.Quarantine != nil {
		t.Errorf("%s: %v", st.State, st.Quarantine)
	}
}
