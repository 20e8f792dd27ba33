package sandboxd

import (
	"context"
	"errors"
)

// The place where commands keep their output is small, and what one leaves there may fill
// it. Then they keep it elsewhere, if there is room.

var errNoRoom = errors.New("no other place in the container has room")

// refused reports whether the command was not started since there is no room.
func (p *process) refused(ran *runAnswer) bool {
	t, err := p.session.facts().parse(*ran.Stdout)
	_, full := t.says("room")
	return err == nil && full
}

// moves finds another place for the command's output, unless it is stopped.
func (p *process) moves(held *access) bool {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.wasStopped() {
		return false
	}
	moved, err := p.session.move(p.ctx, held)
	p.note(p.ctx, "looking for room for a command's output", err)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.folder = folder(moved.facts.tmp, p.name)
	return true
}

// move has the session look for a place with room, once for all who found it full.
func (s *session) move(ctx context.Context, full *access) (*access, error) {
	select {
	case s.reopening <- struct{}{}:
		defer func() { <-s.reopening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	held := s.access.Load()
	if held == full {
		found, err := s.probe(ctx, full)
		if err != nil {
			return nil, err
		}
		s.sweep(ctx, s.client.timeout) // where it is now
		moved := *full
		moved.facts = found
		held = &moved
	}
	if held.gone != nil || held.facts.tmp == full.facts.tmp || held.facts.incarnation() != s.files {
		return nil, errNoRoom
	}
	s.access.Store(held)
	return held, nil
}
