package sandboxd

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// sweepIdle is how long results that have arrived stay in the container if no
	// command follows, which removes them on its way. It is longer than the pauses of
	// who gives one command after the other: a sweep costs the service an exec.
	sweepIdle = 3 * time.Second
	// sweepTimeout bounds a sweep, and with it the end of a session.
	sweepTimeout = time.Second
	// sweepMost is how many results one request removes.
	sweepMost = 64
)

// kept are the runs whose results have arrived, and are in the container still.
type kept struct {
	mu       sync.Mutex
	runs     []string
	added    time.Time // the last one
	sweeping bool
}

// arrived notes that the result of a run need not be kept any longer.
func (s *session) arrived(runs ...string) {
	if len(runs) == 0 {
		return
	}
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs, k.added = append(k.runs, runs...), time.Now()
	if !k.sweeping && s.alive.Err() == nil {
		k.sweeping = true
		s.tasks.Go(s.sweepWhenIdle)
	}
}

// take returns results for a request to remove.
func (k *kept) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(k.runs), sweepMost)
	some := append([]string(nil), k.runs[:n]...)
	k.runs = k.runs[n:]
	return some
}

// wait is how long nobody may add a result before they are to be removed. With none it
// ends the sweeping.
func (k *kept) wait() (d time.Duration, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.runs) == 0 {
		k.sweeping = false
		return 0, false
	}
	return sweepIdle - time.Since(k.added), true
}

// sweepWhenIdle removes what no command removes.
func (s *session) sweepWhenIdle() {
	for {
		d, more := s.kept.wait()
		switch {
		case !more:
			return
		case d > 0:
			if sleep(s.alive, d) != nil {
				return
			}
		default:
			s.sweep(s.alive, s.client.timeout)
		}
	}
}

// sweep removes results. What it cannot remove, a command does when it is old.
func (s *session) sweep(ctx context.Context, timeout time.Duration) {
	runs := s.kept.take()
	held := s.access.Load()
	if len(runs) == 0 || held.gone != nil {
		return
	}
	r := s.facts().control("sweep", s.facts().tmp, strings.Join(runs, " "))
	r.timeout = timeout
	if _, err := s.post(ctx, held, r); err != nil {
		if ctx.Err() != nil { // the session ends, and then sweeps
			s.kept.mu.Lock()
			defer s.kept.mu.Unlock()
			s.kept.runs = append(s.kept.runs, runs...)
			return
		}
		s.provider.logger.Debug("removing results that have arrived", "session", s.id, "error", err)
	}
}
