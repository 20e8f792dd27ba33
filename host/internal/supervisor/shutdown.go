package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
)

// cutGrace is how long a plugin may take to end by itself when no time is left:
// enough to stop what it runs, short enough for someone who waits.
const cutGrace = 500 * time.Millisecond

// Shutdown takes no more calls, waits for those in flight until ctx ends, and
// then ends the plugin, and those that are leaving, with their process groups: in order if it does so in time,
// killed otherwise. It returns when nothing is left. Afterwards Acquire fails
// with an error that wraps [fs.ErrClosed]. An error tells that calls were cut
// off, or that a process could not be ended.
func (s *Supervisor) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.gone
		return nil
	}
	s.closed = true
	start := s.start
	s.mu.Unlock()
	defer close(s.gone)

	s.cancel(s.errClosed()) // a start under way, and waits for the next
	if start != nil {
		<-start.done
	}
	cutErr := s.drain(ctx)
	stopErr := s.stopAll(ctx)
	close(s.cut)
	s.work.Wait()
	s.mu.Lock()
	s.update(func(st *Status) { st.State, st.PID, st.Started, st.Leaving = Closed, 0, time.Time{}, 0 })
	s.cfg.Events.Add(events.Closed, "the host was shut down")
	s.mu.Unlock()
	return errors.Join(cutErr, stopErr)
}

// drain waits until no call is in flight.
func (s *Supervisor) drain(ctx context.Context) error {
	s.mu.Lock()
	idle := make(chan struct{})
	if s.calls.Load() == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("provider %s: shut down with %d calls in flight: %w", s.cfg.Provider, s.calls.Load(), ctx.Err())
	}
}

// stopAll ends the running plugin, and those that are leaving.
func (s *Supervisor) stopAll(ctx context.Context) error {
	s.mu.Lock()
	plugins := slices.Collect(maps.Keys(s.leaving))
	if s.running != nil {
		plugins = append(plugins, s.running)
	}
	s.mu.Unlock()
	errs := make([]error, len(plugins))
	var wg sync.WaitGroup
	for i, p := range plugins {
		wg.Go(func() { errs[i] = s.stop(ctx, p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stop ends a plugin.
func (s *Supervisor) stop(ctx context.Context, p *plugin) error {
	s.stopping.Store(true)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
		defer cancel()
	}
	if err := p.backend.Stop(ctx); err != nil {
		return fmt.Errorf("provider %s: stop: %w", s.cfg.Provider, err)
	}
	return nil
}

// release takes back an instance.
func (s *Supervisor) release(p *plugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.refs--; p.refs == 0 {
		p.released = time.Now()
	}
	p.settle()
	if s.calls.Add(-1) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}
