package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// reserve keeps this manager from using a session until the returned function is
// called. It does not if the session is in use here.
func (m *Manager) reserve(r store.Record) (release func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[r.ID]
	if h == nil {
		h = newHeld(r, nil)
		m.held[r.ID] = h
	}
	if h.users > 0 || h.stopping || h.generation != r.Generation {
		return nil, false
	}
	h.stopping = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.stopping = false
		if h.ws == nil && m.held[r.ID] == h {
			delete(m.held, r.ID)
		}
	}, true
}

// hibernate stops the workspace of a session that nobody uses. It reports whether
// it did; one that came into use meanwhile is left alone.
func (m *Manager) hibernate(ctx context.Context, r store.Record) (bool, error) {
	release, ok := m.reserve(r)
	if !ok {
		return false, nil
	}
	defer release()
	return do(ctx, m, r.ID, func(ctx context.Context) (bool, error) {
		r.State = store.Hibernating
		r, err := m.st.Swap(ctx, r, store.Options{Gateway: m.id, Lease: m.timing.Lease, Unused: true})
		if conflict(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return m.sleep(ctx, r)
	})
}

// sleep stops the workspace of a record in state Hibernating that this manager owns.
func (m *Manager) sleep(ctx context.Context, r store.Record) (bool, error) {
	var stopped error
	ref, err := workspace.ParseRef(r.Ref)
	if host, ok := m.config.Host.(stopper); ok && err == nil {
		stopped = host.Stop(ctx, ref)
	} else {
		stopped = errors.Join(err, errors.ErrUnsupported)
	}
	r.State = store.Hibernated
	switch {
	case errors.Is(stopped, workspace.ErrUnavailable):
		r.State = store.Gone
		m.log.Warn("the workspace of a session is gone", "session", r.ID, "ref", r.Ref, "error", stopped)
	case errors.Is(stopped, errors.ErrUnsupported):
		r.State, r.CanStop = store.Running, false
	case stopped != nil:
		// Whether it runs is not known. The next use starts it if it does not.
		r.State = store.Running
		m.log.Warn("the workspace of an idle session could not be stopped", "session", r.ID, "error", stopped)
	}
	err = m.settle(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := m.st.Swap(ctx, r, store.Options{})
		return err
	})
	if err != nil {
		return false, err
	}
	if r.State == store.Running {
		return false, nil
	}
	m.mu.Lock()
	delete(m.held, r.ID)
	m.mu.Unlock()
	return true, nil
}

// makeRoom puts the session that has been idle longest to sleep, or closes the one
// that has slept longest. It reports whether it did either.
func (m *Manager) makeRoom(ctx context.Context, p Policy, which string) (bool, error) {
	switch which {
	case store.LimitResident:
		if p.EvictIdleAfter == nil {
			return false, nil
		}
		records, err := m.st.List(ctx, store.Running)
		if err != nil {
			return false, err
		}
		for _, r := range m.byIdleness(records, *p.EvictIdleAfter) {
			if done, err := m.hibernate(ctx, r); done || err != nil {
				return done, err
			}
		}
	case store.LimitOpen:
		records, err := m.st.List(ctx, store.Hibernated)
		if err != nil {
			return false, err
		}
		slices.SortFunc(records, func(a, b store.Record) int { return a.Since.Compare(b.Since) })
		for _, r := range records {
			if err := m.shut(ctx, r, store.Options{}); !conflict(err) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// byIdleness returns those that can be stopped and have been idle for long enough,
// the idlest first.
func (m *Manager) byIdleness(records []store.Record, least time.Duration) []store.Record {
	idle := make(map[string]time.Duration, len(records))
	var able []store.Record
	for _, r := range records {
		idle[r.ID] = m.idle(r)
		if r.CanStop && idle[r.ID] >= least && (!r.Busy() || r.BusyBy == m.id) {
			able = append(able, r)
		}
	}
	slices.SortFunc(able, func(a, b store.Record) int { return int(idle[b.ID] - idle[a.ID]) })
	return able
}
