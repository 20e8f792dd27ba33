package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
)

const (
	// DefaultDrainLimit is longer than most commands of providers that cannot
	// attach to them again take, and short enough for an operator to see the end of
	// a swap.
	DefaultDrainLimit = 10 * time.Minute
	// leaveGrace is how long a plugin that nobody has any more may take to end by
	// itself. Nobody waits for it.
	leaveGrace = 10 * time.Second
)

// retire has a plugin leave: it gets no new callers. The caller holds s.mu.
func (s *Supervisor) retire(p *plugin) {
	p.isLeaving = true
	close(p.leaving)
	s.leaving[p] = struct{}{}
	s.update(func(st *Status) { st.Leaving = len(s.leaving) })
	p.settle()
	s.work.Go(func() { s.seeOff(p) })
}

// seeOff ends a plugin that is leaving, when nobody has it any more or its time is
// over. Watch buries it.
func (s *Supervisor) seeOff(p *plugin) {
	limit := time.NewTimer(s.cfg.DrainLimit)
	defer limit.Stop()
	select {
	case <-p.free:
	case <-limit.C:
		s.cutOff(p)
		return
	case <-p.backend.Exited():
		return
	case <-s.cut:
		return
	}
	s.mu.Lock()
	stop := !p.ended && !s.closed // Shutdown stops it too
	p.isStopped = p.isStopped || stop
	s.mu.Unlock()
	if !stop {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveGrace)
	defer cancel()
	if err := p.backend.Stop(ctx); err != nil {
		s.logger.Error("plugin that was leaving was not stopped", "error", err)
	}
}

// cutOff ends a plugin that still has calls when its time is over.
func (s *Supervisor) cutOff(p *plugin) {
	s.mu.Lock()
	refs := p.refs
	s.cfg.Events.Add(events.DrainCut, fmt.Sprintf("pid %d still had %d calls after %v", p.backend.PID(), refs, s.cfg.DrainLimit))
	s.mu.Unlock()
	s.logger.Warn("plugin that was swapped out is cut off", "pid", p.backend.PID(), "calls", refs, "limit", s.cfg.DrainLimit)
	p.backend.Kill(fmt.Sprintf("it was swapped out, and still had calls at its drain limit of %v", s.cfg.DrainLimit))
}

// watchIdle stops a plugin that nobody has used for the time that is configured.
func (s *Supervisor) watchIdle(p *plugin) {
	timer := time.NewTimer(s.cfg.IdleTimeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.leaving:
			return
		case <-p.backend.Exited():
			return
		case <-s.ctx.Done():
			return
		}
		timer.Reset(s.stopIdle(p))
	}
}

// stopIdle has a plugin leave if it was idle for long enough, and tells after what
// time it may be. A call that comes a moment later starts the next one.
func (s *Supervisor) stopIdle(p *plugin) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch left := s.cfg.IdleTimeout - time.Since(p.released); {
	case p.refs > 0 || p != s.running || s.start != nil || s.closed:
		return s.cfg.IdleTimeout
	case left > 0:
		return left
	}
	s.running = nil
	s.update(func(st *Status) { st.State, st.PID, st.Started = Stopped, 0, time.Time{} })
	s.cfg.Events.Add(events.IdleStop, fmt.Sprintf("pid %d had no call for %v", p.backend.PID(), s.cfg.IdleTimeout))
	s.retire(p)
	return s.cfg.IdleTimeout
}
