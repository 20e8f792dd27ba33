package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// DefaultRestarts is how many deaths within DefaultRestartWindow are not too many.
	// With the pauses between starts, a plugin that dies at once and is asked for
	// all the time gets there in about a minute, in which much that it may wait for
	// has come back; two deaths in each of ten minutes are no bad luck.
	DefaultRestarts = 20
	// DefaultRestartWindow is how long a death counts.
	DefaultRestartWindow = 10 * time.Minute
	// newestInterval is how often calls to a provider in quarantine look for
	// another binary.
	newestInterval = time.Second
)

// QuarantineError is what calls fail with, at once, while a plugin that died too
// often is not started. errors.As finds the [*workspace.PluginError] in it, errors.Is
// the last reason.
type QuarantineError struct {
	*workspace.PluginError
	// Since is when it began.
	Since time.Time
	// Deaths is how often it had died within Window.
	Deaths int
	Window time.Duration
	// Last is why it died last.
	Last error
}

// Unwrap returns the plugin error and the last reason.
func (e *QuarantineError) Unwrap() []error { return []error{e.PluginError, e.Last} }

// Temporary is false: somebody has to do something.
func (*QuarantineError) Temporary() bool { return false }

// quarantine counts deaths. It is guarded by the supervisor's mutex.
type quarantine struct {
	deaths []time.Time
	err    *QuarantineError // while it lasts
	looked time.Time        // for another binary
}

// noteDeath counts a death of the plugin that serves, or that was to. The caller
// holds s.mu.
func (s *Supervisor) noteDeath(why error) {
	if s.cfg.Restarts <= 0 || s.quarantine.err != nil || errors.Is(why, workspace.ErrTransient) {
		// What the plugin's service has refused for now is no fault of the plugin.
		return
	}
	now := time.Now()
	recent := slices.DeleteFunc(append(s.quarantine.deaths, now), func(t time.Time) bool { return now.Sub(t) > s.cfg.RestartWindow })
	s.quarantine.deaths = recent
	if len(recent) <= s.cfg.Restarts || s.start != nil || s.serving() != nil { // the next one may be well
		return
	}
	reason := fmt.Sprintf("its plugin is in quarantine since %s: it died or did not start %d times within %v, more than its budget of %d (last: %v); "+
		"berth reload %s, a new binary, or a restart of the host starts it again",
		now.Format(time.RFC3339), len(recent), s.cfg.RestartWindow, s.cfg.Restarts, why, s.cfg.Provider)
	s.quarantine.err = &QuarantineError{
		PluginError: &workspace.PluginError{Provider: s.cfg.Provider, Op: "start", Reason: reason},
		Since:       now, Deaths: len(recent), Window: s.cfg.RestartWindow, Last: why,
	}
	s.quarantine.looked = now
	s.update(func(st *Status) { st.State, st.Quarantine = Quarantined, s.quarantine.err })
	s.cfg.Events.Add(events.Quarantined, fmt.Sprintf("it died or did not start %d times within %v (last: %v)", len(recent), s.cfg.RestartWindow, why))
	s.work.Go(func() { // a logger that blocks holds up nobody
		s.logger.Error("plugin is in quarantine", "deaths", len(recent), "within", s.cfg.RestartWindow, "last", why)
	})
}

// endQuarantine ends a quarantine, and forgets what led to it. The caller holds s.mu.
func (s *Supervisor) endQuarantine(why string) {
	if s.quarantine.err == nil {
		return
	}
	s.quarantine = quarantine{}
	s.backoff = backoff{max: s.backoff.max, healthyAfter: s.backoff.healthyAfter}
	s.update(func(st *Status) { st.State, st.Quarantine = Failed, nil })
	s.cfg.Events.Add(events.Released, why)
}

// checkQuarantine ends a quarantine if another binary is there by now. It holds no
// lock while it looks.
func (s *Supervisor) checkQuarantine() {
	if s.status.Load().Quarantine == nil {
		return
	}
	s.mu.Lock()
	look := s.quarantine.err != nil && s.cfg.Find != nil && time.Since(s.quarantine.looked) >= newestInterval
	if look {
		s.quarantine.looked = time.Now()
	}
	was, last := s.quarantine.err, s.last
	s.mu.Unlock()
	if !look {
		return
	}
	found, err := s.cfg.Find()
	if err != nil || found.Same(last) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quarantine.err == was {
		s.endQuarantine("another binary is there: " + found.Path)
	}
}
