package session

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// State of a session as clients see it.
type State string

// The states.
const (
	Running    State = "running"
	Hibernated State = "hibernated"
)

// Info is what a client may know of a session.
type Info struct {
	ID, Runtime, Tenant string
	// Alive says that its workspace runs, as far as is known without asking it.
	Alive        bool
	State        State
	Created      time.Time
	LastActivity time.Time
	Idle         time.Duration
}

// Counts tells how many sessions there are.
type Counts struct {
	Resident int // whose workspace runs
	Open     int // hibernated ones too
}

// Get returns an open session.
func (m *Manager) Get(ctx context.Context, id string) (Info, error) {
	r, err := m.st.Get(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !listed(r):
		return Info{}, errNotFound(id)
	case err != nil:
		return Info{}, storeError(err)
	}
	return m.info(r), nil
}

// List returns the open sessions, oldest first.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	records, err := m.st.ListOpen(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	infos := make([]Info, 0, len(records))
	for _, r := range records {
		if listed(r) {
			infos = append(infos, m.info(r))
		}
	}
	return infos, nil
}

// Count counts the sessions, those that are being opened included.
func (m *Manager) Count(ctx context.Context) (Counts, error) {
	resident, open, err := m.st.Count(ctx)
	return Counts{Resident: resident, Open: open}, storeError(err)
}

// listed reports whether a client may know of a session. Of one that is being opened
// nobody has a token yet.
func listed(r store.Record) bool { return r.State.Open() && r.State != store.Opening }

// info tells what the store knows, and this gateway's uses since it was told of them.
func (m *Manager) info(r store.Record) Info {
	i := Info{ID: r.ID, Runtime: r.Runtime, Tenant: r.Tenant, State: Running, Created: r.Created, Idle: m.idle(r)}
	switch r.State {
	case store.Hibernated, store.Waking:
		i.State = Hibernated
	case store.Running, store.Hibernating:
		i.Alive = true
	}
	i.LastActivity = r.Now.Add(-i.Idle)
	return i
}

// idle is how long a session has not been used, by any gateway.
func (m *Manager) idle(r store.Record) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	idle := r.Idle()
	if h := m.held[r.ID]; h != nil && h.generation == r.Generation {
		if h.users > 0 {
			return 0
		}
		if !h.used.IsZero() {
			idle = min(idle, time.Since(h.used))
		}
	}
	return idle
}
