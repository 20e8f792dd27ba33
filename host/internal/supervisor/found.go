package supervisor

import (
	"fmt"

	"github.com/berth-dev/berth/host/internal/events"
)

// NoteFound tells what a look at the plugin folders came to while a plugin serves:
// an error is of what stands there and may not be started, nil is that it is what
// runs, and so nothing waits to be swapped any more. It does nothing if none serves.
func (s *Supervisor) NoteFound(err error) {
	s.mu.Lock()
	p := s.serving()
	if s.closed || p == nil {
		s.mu.Unlock()
		return
	}
	pid := p.backend.PID()
	if err == nil {
		s.update(func(st *Status) { st.SwapError = nil })
		s.cfg.Events.Add(events.Restored, fmt.Sprintf("what pid %d runs is what a start would take again", pid))
		s.mu.Unlock()
		return
	}
	err = fmt.Errorf("provider %s: %w", s.cfg.Provider, err)
	s.update(func(st *Status) { st.SwapError = err })
	s.cfg.Events.Add(events.SwapRefused, fmt.Sprintf("pid %d serves on: %v", pid, err))
	s.mu.Unlock()
	s.logger.Warn("plugin was not swapped", "error", err, "pid", pid)
}
