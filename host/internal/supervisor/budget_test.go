package supervisor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/shared/workspace"
)

// A soft bound is told of once, and a moment's peak ends no plugin.
func TestReadingsOfMemory(t *testing.T) {
	const soft, hard = 200, 256
	for name, test := range map[string]struct {
		limits   budget.Limits
		readings []int64
		warns    int // at this reading, -1 never
		ends     int
	}{
		"little":         {budget.Limits{Memory: hard, MemorySoft: soft}, []int64{100, 200, 150}, -1, -1},
		"over soft":      {budget.Limits{Memory: hard, MemorySoft: soft}, []int64{100, 201, 100, 210, 256}, 1, -1},
		"a peak":         {budget.Limits{Memory: hard, MemorySoft: soft}, []int64{100, 300, 100, 300, 250, 300}, 1, -1},
		"two in a row":   {budget.Limits{Memory: hard, MemorySoft: soft}, []int64{300, 100, 257, 300}, 0, 3},
		"soft alone":     {budget.Limits{MemorySoft: soft}, []int64{300, 3000, 30000}, 0, -1},
		"hard is a mark": {budget.Limits{Memory: hard, MemorySoft: hard}, []int64{256, 256, 256, 257, 257}, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			use := memoryUse{limits: test.limits}
			warned, ended := -1, -1
			for i, used := range test.readings {
				warn, end := use.read(used)
				if warn && warned >= 0 {
					t.Errorf("told again at reading %d", i)
				}
				if warn {
					warned = i
				}
				if end {
					ended = i
				}
			}
			if warned != test.warns || ended != test.ends {
				t.Errorf("told at %d, ended at %d", warned, ended)
			}
		})
	}
}

// newCounted is a supervisor whose plugin may die twice.
func newCounted(t *testing.T) *Supervisor {
	t.Helper()
	cfg := testConfig(t, "good")
	cfg.Restarts, cfg.RestartWindow = 2, time.Hour
	return supervise(t, cfg)
}

func (s *Supervisor) die(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDeath(why)
}

// What the plugin's service refuses for now is no death, nor is one that is long
// past, or one beside which another start is under way already a reason.
func TestWhatCountsAsADeath(t *testing.T) {
	failed := errors.New("it failed")
	t.Run("transient", func(t *testing.T) {
		s := newCounted(t)
		for range 10 {
			s.die(fmt.Errorf("no answer: %w", workspace.ErrTransient))
		}
		if s.Status().State == Quarantined {
			t.Error(s.Status().Quarantine)
		}
	})
	t.Run("long past", func(t *testing.T) {
		s := newCounted(t)
		s.quarantine.deaths = []time.Time{time.Now().Add(-2 * time.Hour), time.Now().Add(-61 * time.Minute), time.Now().Add(-59 * time.Minute)}
		if s.die(failed); s.Status().State == Quarantined || len(s.quarantine.deaths) != 2 {
			t.Errorf("%v", s.quarantine.deaths)
		}
		if s.die(failed); s.Status().State != Quarantined || s.Status().Quarantine.Deaths != 3 {
			t.Errorf("%+v", s.Status())
		}
	})
	t.Run("a start is under way", func(t *testing.T) {
		s := newCounted(t)
		s.start = &attempt{}
		for range 3 {
			s.die(failed)
		}
		state := s.Status().State
		if s.start = nil; state == Quarantined {
			t.Error("it is in quarantine while it starts")
		}
		if s.die(failed); s.Status().State != Quarantined {
			t.Errorf("%+v", s.Status())
		}
		if _, err := s.Acquire(t.Context()); !errors.As(err, new(*QuarantineError)) || !errors.Is(err, failed) {
			t.Error(err)
		}
		// A death of one that was started before says nothing new.
		since := s.Status().Quarantine.Since
		if s.die(failed); !s.Status().Quarantine.Since.Equal(since) {
			t.Errorf("since %v, then %v", since, s.Status().Quarantine.Since)
		}
	})
	t.Run("without end", func(t *testing.T) {
		s := supervise(t, testConfig(t, "good"))
		for range 100 {
			s.die(failed)
		}
		if s.Status().State == Quarantined {
			t.Error("it is in quarantine")
		}
	})
}

// A reload forgets the deaths, and the pauses that came of them.
func TestAReloadEndsAQuarantine(t *testing.T) {
	s := newCounted(t)
	for range 3 {
		s.die(errors.New("it failed"))
	}
	s.mu.Lock()
	s.backoff.deaths, s.backoff.until = 9, time.Now().Add(time.Hour)
	s.mu.Unlock()
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, s)
	if st := s.Status(); st.State != Running || st.Quarantine != nil || len(s.quarantine.deaths) != 0 {
		t.Errorf("%+v", st)
	}
	var kinds []string
	for _, e := range s.cfg.Events.List() {
		kinds = append(kinds, e.Kind)
	}
	if want := []string{events.Quarantined, events.Released, events.Start, events.Started}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("%q", kinds)
	}
}
