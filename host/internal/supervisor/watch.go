package supervisor

import (
	"time"

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
	}
	err := &workspace.PluginError{
		Provider: s.cfg.Provider, Op: "serve", PID: p.backend.PID(),
		ExitStatus: p.backend.ExitStatus(), Stderr: p.backend.Stderr(), Reason: why,
	}
	s.mu.Lock()
	closed, calls := s.closed, p.refs
	p.ended = true
	if p.refs == 0 {
		close(p.free)
	}
	if !closed {
		s.backoff.died(time.Now(), time.Since(p.started))
		s.lastErr = err
		s.update(func(st *Status) {
			st.State, st.PID, st.Started, st.LastError = Failed, 0, time.Time{}, err
		})
	}
	s.mu.Unlock()
	if !closed {
		s.logger.Warn("plugin ended", "pid", err.PID, "status", err.ExitStatus, "reason", why, "calls", calls)
	}
}

// awaitReleased waits until no caller has the plugin any more, so that their
// calls still get errors from its connection, or until a shutdown cuts them off.
func (s *Supervisor) awaitReleased(p *plugin) {
	select {
	case <-p.free:
	case <-s.cut:
	}
}
