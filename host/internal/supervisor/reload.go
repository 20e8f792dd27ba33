package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/events"
)

// errGivenUp is the end of a start for which nobody waits any more.
var errGivenUp = errors.New("the start was given up")

// Reload starts the plugin that is found now, and has it take the place of the one
// that runs, which then leaves: it keeps the calls that it has, and ends when the
// last of them is released or its [Config.DrainLimit] has passed. A new one that
// does not come up, as far as an answer to its configuration, leaves the old one
// as it is; the error says why. With none running it starts one.
//
// One start is under way at a time, and callers share it, but for one who came
// after its binary was replaced: that one waits for another. A swap for which
// nobody waits any more is given up. [errors.ErrUnsupported] is for a provider
// whose workspaces end with its process, and for one in this process.
func (s *Supervisor) Reload(ctx context.Context) error {
	for {
		at, mine, err := s.joinReload() //nolint:contextcheck // a start is for all callers, not for this one
		if err != nil {
			return err
		}
		select {
		case <-at.done:
		case <-ctx.Done():
			s.forsake(at)
			return fmt.Errorf("provider %s: its new plugin is still starting: %w", s.cfg.Provider, ctx.Err())
		}
		if mine || !at.canceled && s.isNewest(at) {
			return at.err
		}
	}
}

// joinReload joins the start under way, or begins one.
func (s *Supervisor) joinReload() (at *attempt, mine bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, s.errClosed()
	}
	if p := s.serving(); p != nil || s.cfg.InProcess != nil {
		if err := s.replaceable(p); err != nil {
			s.update(func(st *Status) { st.SwapError = err })
			s.cfg.Events.Add(events.SwapRefused, err.Error())
			return nil, false, err
		}
	}
	s.endQuarantine("a reload was asked for")
	if at = s.start; at == nil {
		at, mine = s.begin(), true
	}
	at.asking++
	return at, mine, nil
}

// Running tells which binary the plugin that takes calls was started from; false if
// none does.
func (s *Supervisor) Running() (catalog.Binary, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.serving()
	if p == nil {
		return catalog.Binary{}, false
	}
	return p.binary, true
}

// replaceable says why a plugin may not be swapped or stopped while its host goes
// on: nil if it may.
func (s *Supervisor) replaceable(p *plugin) error {
	switch {
	case s.cfg.InProcess != nil:
		return fmt.Errorf("provider %s is served in this process, which has no other: %w", s.cfg.Provider, errors.ErrUnsupported)
	case p.configured.GetEphemeral():
		return fmt.Errorf("provider %s: the workspaces of its plugin end with its process: %w", s.cfg.Provider, errors.ErrUnsupported)
	}
	return nil
}

// forsake is for a caller of Reload who waits no longer.
func (s *Supervisor) forsake(at *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.asking--; at.asking > 0 || at.needed || s.start != at {
		return
	}
	at.canceled = true
	at.cancel(errGivenUp)
}

// isNewest says that what an attempt has started, or tried to, is what is found
// now.
func (s *Supervisor) isNewest(at *attempt) bool {
	now, err := s.cfg.Find()
	return err != nil || now.Same(at.binary)
}
