package session

import (
	"context"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// maxSweepers bounds what a sweep does at the same time: each is a call to a provider,
// which may take long, and clients are waiting for others.
const maxSweepers = 4

// sweep takes over what gateways left when they died, ends what is idle, and
// destroys what the policy says. Another gateway may do the same at the same time:
// each record's version lets one of them do it. What takes long goes on while the
// next sweep begins.
func (m *Manager) sweep(ctx context.Context) error {
	p, err := m.loadPolicy(ctx)
	if err != nil {
		return err
	}
	states := []store.State{store.Opening, store.Running, store.Hibernating, store.Hibernated, store.Waking, store.Closing, store.Purging, store.Gone}
	if p.WorkspaceTTL != nil || p.ContainerTTL != nil { // else there may be very many for nothing
		states = append(states, store.Closed)
	}
	records, err := m.st.List(ctx, states...)
	if err != nil {
		return err
	}
	for _, r := range records {
		act := m.due(p, r)
		if act == nil {
			continue
		}
		m.background(r.ID, func(ctx context.Context) {
			select {
			case m.sweepers <- struct{}{}:
				defer func() { <-m.sweepers }()
			case <-ctx.Done():
				return
			}
			if err := act(ctx); err != nil && !conflict(err) {
				m.log.Warn("a session could not be put in order; trying again", "session", r.ID, "state", r.State, "error", err)
			}
		})
	}
	return m.st.Tidy(ctx)
}

// due is what is to be done with a record; nil is nothing.
func (m *Manager) due(p Policy, r store.Record) func(context.Context) error {
	idle := m.idle(r)
	over := func(d time.Duration, limit *time.Duration) bool { return limit != nil && d >= *limit }
	abandoned := r.Anonymous || r.Now.Sub(r.LeaseUntil) >= m.timing.Abandoned && r.Now.Sub(r.Since) >= m.timing.Abandoned
	purge := func(ctx context.Context) error { return m.purge(ctx, r) }
	switch r.State {
	case store.Opening:
		switch {
		case r.Held() || !abandoned:
		case r.Ref != "": // it was closed, and somebody was coming back
			return func(ctx context.Context) error {
				r.State = store.Running // which it may be
				return m.shut(ctx, r, store.Options{})
			}
		default:
			return purge
		}
	case store.Purging:
		if !r.Held() {
			return purge
		}
	case store.Hibernating, store.Waking:
		if !r.Held() {
			return func(ctx context.Context) error {
				r.State = store.Hibernating
				r, err := m.st.Swap(ctx, r, store.Options{Gateway: m.id, Lease: m.timing.Lease})
				if err == nil {
					_, err = m.sleep(ctx, r)
				}
				return err
			}
		}
	case store.Closing:
		if !r.Held() {
			return func(ctx context.Context) error { return m.shut(ctx, r, store.Options{}) }
		}
	case store.Running:
		switch {
		case r.Busy() && r.BusyBy != m.id:
		case over(idle, p.IdleTimeout):
			return func(ctx context.Context) error { return m.shutIdle(ctx, r) }
		case r.CanStop && over(idle, p.EvictIdleAfter):
			return func(ctx context.Context) error {
				_, err := m.hibernate(ctx, r)
				return err
			}
		}
	case store.Hibernated:
		if over(r.Now.Sub(r.Since), p.IdleTimeout) {
			return func(ctx context.Context) error { return m.shut(ctx, r, store.Options{}) }
		}
	case store.Gone:
		if over(idle, p.IdleTimeout) {
			return func(ctx context.Context) error { return m.st.Delete(ctx, r) }
		}
	case store.Closed:
		if over(idle, p.WorkspaceTTL) || over(r.Now.Sub(r.Since), p.ContainerTTL) {
			return purge
		}
	}
	return nil
}

// shutIdle closes a session unless it comes into use meanwhile.
func (m *Manager) shutIdle(ctx context.Context, r store.Record) error {
	release, ok := m.reserve(r)
	if !ok {
		return nil
	}
	defer release()
	return m.shut(ctx, r, store.Options{Gateway: m.id, Unused: true})
}

// background does something with a session as a task of its own, unless one is at it
// already. It reports whether it does.
func (m *Manager) background(id string, f func(context.Context)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.sweeping[id] {
		return false
	}
	m.sweeping[id] = true
	t := &task{done: make(chan struct{})}
	m.doing[t] = id
	m.tasks.Go(func() {
		f(m.taskCtx)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.sweeping, id)
		delete(m.doing, t)
		close(t.done)
	})
	return true
}
