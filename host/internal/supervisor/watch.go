package supervisor

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/shared/workspace"
)

// watch owns a running plugin until it has ended and nobody has it any more.
func (s *Supervisor) watch(p *plugin) {
	if p.binary.Path != "" {
		s.work.Go(func() { _, _ = p.binary.Digest() }) // for Status
	}
	if p.backend.PID() != 0 && s.cfg.LivenessInterval > 0 {
		s.work.Go(func() { s.checkLiveness(p) })
	}
	if p.backend.Bounds() != "" {
		s.work.Go(func() { s.watchBudget(p) })
	}
	if s.cfg.IdleTimeout > 0 && s.replaceable(p) == nil {
		s.work.Go(func() { s.watchIdle(p) })
	}
	select {
	case <-p.backend.Exited():
	case <-s.cut: // a shutdown has done what it could
		return
	}
	await(p.backend.Finished())
	s.noteEnd(p)
	s.awaitReleased(p)
	if err := p.backend.Close(); err != nil {
		s.logger.Error("plugin was not released", "error", err)
	}
}

// noteEnd tells everyone that the plugin is gone.
func (s *Supervisor) noteEnd(p *plugin) {
	why := "the plugin ended by itself"
	if reason := p.backend.Reason(); reason != "" {
		why = "the host ended the plugin: " + reason
	} else if reason := p.backend.OutOfMemory(); reason != "" {
		why = "the kernel ended the plugin: " + reason
	}
	err := &workspace.PluginError{
		Provider: s.cfg.Provider, Op: "serve", PID: p.backend.PID(),
		ExitStatus: p.backend.ExitStatus(), Stderr: p.backend.Stderr(), Reason: why,
	}
	s.mu.Lock()
	closed, calls := s.closed, p.refs
	p.ended = true
	close(p.noted)
	p.settle()
	inOrder := p.isStopped
	switch {
	case p.isLeaving: // what becomes of it says nothing of the one that serves
		delete(s.leaving, p)
		s.update(func(st *Status) { st.Leaving = len(s.leaving) })
	case !closed:
		s.backoff.died(time.Now(), time.Since(p.started))
		s.lastErr = err
		s.update(func(st *Status) {
			st.LastError = err
			if p != s.running {
				return // another one serves already
			}
			st.PID, st.Started = 0, time.Time{}
			if st.State = Failed; s.start != nil {
				st.State = Starting
			}
		})
	}
	if !closed {
		s.tellEnd(p, err)
	}
	if !closed && !p.isLeaving {
		s.noteDeath(err)
	}
	s.mu.Unlock()
	switch {
	case closed:
	case inOrder:
		s.logger.Debug("plugin has left", "pid", err.PID, "status", err.ExitStatus)
	default:
		s.logger.Warn("plugin ended", "pid", err.PID, "status", err.ExitStatus, "reason", why, "calls", calls)
	}
}

// tellEnd notes the end of a plugin as an event. The caller holds s.mu.
func (s *Supervisor) tellEnd(p *plugin, err *workspace.PluginError) {
	kind, text := events.Died, fmt.Sprintf("pid %d, %s, with %d calls: %s", err.PID, err.ExitStatus, p.refs, err.Reason)
	switch {
	case p.isStopped:
		kind, text = events.Drained, fmt.Sprintf("pid %d, %s", err.PID, err.ExitStatus)
	case p.backend.Reason() != "":
		kind = events.Killed
	case p.backend.OutOfMemory() != "":
		kind = events.OutOfMemory
	}
	if p.isLeaving && !p.isStopped {
		text += "; it was leaving"
	}
	s.cfg.Events.Add(kind, text)
}

// awaitReleased waits until no caller has the plugin any more, so that their
// calls still get errors from its connection, or until a shutdown cuts them off.
func (s *Supervisor) awaitReleased(p *plugin) {
	select {
	case <-p.free:
	case <-s.cut:
	}
}
