package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// held is what this manager holds of a session in one generation.
type held struct {
	id         string
	generation int64
	ws         workspace.Workspace
	users      int
	used       time.Time // last begin or end of a use
	lease      time.Time // until when the store says that this manager uses it
	stopping   bool      // this manager is about to stop it: nobody may use it

	// ended is closed when the session is closed under its users.
	ended   chan struct{}
	endOnce sync.Once
}

func newHeld(r store.Record, ws workspace.Workspace) *held {
	return &held{id: r.ID, generation: r.Generation, ws: ws, ended: make(chan struct{})}
}

func (h *held) end() { h.endOnce.Do(func() { close(h.ended) }) }

// Use is a session in use: it is neither hibernated nor closed for being idle.
type Use struct {
	// ID and Runtime are the session's.
	ID, Runtime string
	// Workspace has the runtime's env already.
	Workspace workspace.Workspace

	m    *Manager
	held *held
	once sync.Once
}

// Release ends the use. More than once is once.
func (u *Use) Release() {
	u.once.Do(func() {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		u.held.users--
		u.held.used = time.Now()
	})
}

// Context returns one that ends with ctx, and when the session is closed or purged
// through any gateway; its cause is a Gone [Error] then.
func (u *Use) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-u.held.ended:
			cancel(errClosed(u.ID))
		case <-stop:
		case <-ctx.Done():
		}
	}()
	var once sync.Once
	return ctx, func() {
		once.Do(func() { close(stop) })
		<-done
		cancel(context.Canceled)
	}
}

// Check returns what an error of the workspace means for the session: if that is
// gone, or was closed meanwhile, a Gone [Error], and the session is marked. Others,
// nil too, come back as they are.
func (u *Use) Check(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-u.held.ended:
		return errClosed(u.ID)
	default:
	}
	if !errors.Is(err, workspace.ErrUnavailable) {
		return err
	}
	// Somebody's stop of the workspace ends its commands like this too, and it starts
	// again with the next call: this handle, which knows the old one, tells.
	ctx = context.WithoutCancel(ctx)
	if probe(ctx, u.Workspace) {
		if err := u.m.markGone(ctx, u.ID, u.held); err != nil {
			u.m.log.Warn("a session whose workspace is gone could not be marked", "session", u.ID, "error", err)
		}
	}
	return errGone(u.ID, err)
}

// probeTimeout bounds the look at a workspace that is said to be gone.
const probeTimeout = 30 * time.Second

// probe reports whether a workspace is gone.
func probe(ctx context.Context, ws workspace.Workspace) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := ws.Stat(ctx, ".")
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = ws.Run(ctx, workspace.Command{Args: []string{"true"}})
	}
	return errors.Is(err, workspace.ErrUnavailable)
}

// markGone has nobody come back to a workspace that is gone.
func (m *Manager) markGone(ctx context.Context, id string, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	r, err := m.st.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.State != store.Running || r.Generation != h.generation {
		return nil
	}
	r.State = store.Gone
	if _, err := m.st.Swap(ctx, r, store.Options{}); err != nil && !conflict(err) {
		return err
	}
	m.forget(h)
	m.log.Warn("the workspace of a session is gone", "session", id, "ref", r.Ref)
	return nil
}

// Acquire marks a session as in use, wakes it if it is hibernated, and returns its
// workspace. Release must be called.
func (m *Manager) Acquire(ctx context.Context, id string) (*Use, error) {
	for {
		r, err := m.st.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, errNotFound(id)
		}
		if err != nil {
			return nil, storeError(err)
		}
		switch r.State {
		case store.Running:
			u, err := m.use(ctx, r)
			if u != nil || err != nil {
				return u, err
			}
			err = m.await(ctx, id)
			if err != nil {
				return nil, err
			}
		case store.Hibernated, store.Hibernating, store.Waking:
			if r.State != store.Hibernated && r.Held() {
				if err := m.await(ctx, id); err != nil {
					return nil, err
				}
				continue
			}
			if err := m.wake(ctx, r); err != nil && !conflict(err) {
				return nil, storeError(err)
			}
		case store.Opening:
			return nil, errOpening(id)
		case store.Gone:
			return nil, &Error{Kind: Gone, Text: fmt.Sprintf("the workspace of session %s is gone", id), Err: workspace.ErrUnavailable}
		default:
			return nil, errNotFound(id)
		}
	}
}

// use enters a use of a running session. None and no error: it does not run any
// more, or is about to be stopped by this manager.
func (m *Manager) use(ctx context.Context, r store.Record) (*Use, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errShutdown()
	}
	h := m.held[r.ID]
	if h != nil && h.generation > r.Generation {
		m.mu.Unlock()
		_, err := m.endIfOther(ctx, h)
		return nil, err
	}
	if h == nil || h.generation < r.Generation {
		if h != nil {
			h.end()
		}
		ws, err := m.attach(r)
		if err != nil {
			m.mu.Unlock()
			return nil, workspaceError("reach the workspace of", r.ID, err)
		}
		h = newHeld(r, ws)
		m.held[r.ID] = h
	}
	if h.stopping {
		m.mu.Unlock()
		return nil, nil //nolint:nilnil // neither a use nor a fault
	}
	// Before the store is asked: from here on this manager does not stop it.
	h.users++
	h.used = time.Now()
	u := &Use{ID: r.ID, Runtime: r.Runtime, Workspace: h.ws, m: m, held: h}
	fresh := time.Until(h.lease) > m.timing.Lease/3
	m.mu.Unlock()
	if fresh {
		return u, nil
	}
	asked := time.Now()
	ok, err := m.st.Touch(ctx, r.ID, r.Generation, m.id, m.timing.Lease)
	if err != nil || !ok {
		u.Release()
		return nil, storeError(err)
	}
	m.mu.Lock()
	if until := asked.Add(m.timing.Lease); until.After(h.lease) {
		h.lease = until
	}
	m.mu.Unlock()
	return u, nil
}

// attach makes a handle to a session's workspace. No I/O.
func (m *Manager) attach(r store.Record) (workspace.Workspace, error) {
	ref, err := workspace.ParseRef(r.Ref)
	if err != nil {
		return nil, err
	}
	var opts []workspace.Option
	if env, ok := m.runtimes[r.Runtime].Config[envKey]; ok {
		opts = append(opts, workspace.WithConfig(map[string]any{envKey: env}))
	}
	return m.config.Host.Attach(ref, opts...)
}

// envKey is the one key of a runtime's configuration that travels with commands.
const envKey = "env"

// hold keeps a session that this manager has just made or woken, in use for the time
// of a lease from the moment given.
func (m *Manager) hold(r store.Record, ws workspace.Workspace, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[r.ID]
	if h == nil || h.generation < r.Generation {
		if h != nil {
			h.end()
		}
		h = newHeld(r, ws)
		m.held[r.ID] = h
	}
	if h.generation != r.Generation {
		return // it has been started anew since
	}
	// Somebody may use it already: the record was there to be seen.
	h.used = time.Now()
	if until := since.Add(m.timing.Lease); until.After(h.lease) {
		h.lease = until
	}
}

// forget lets a handle go.
func (m *Manager) forget(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[h.id] == h {
		delete(m.held, h.id)
	}
}

// renewUses tells the store what is in use here, and lets go of what has not been
// for a while.
func (m *Manager) renewUses(ctx context.Context) error {
	now := time.Now()
	uses := make(map[string]store.Use)
	m.mu.Lock()
	of := maps.Clone(m.held)
	for id, h := range of {
		switch {
		case h.stopping:
		case h.users > 0:
			uses[id] = store.Use{Generation: h.generation, Lease: m.timing.Lease}
		case h.lease.After(now):
			// Not renewed, but its last activity is told.
			uses[id] = store.Use{Generation: h.generation, Idle: now.Sub(h.used), Lease: h.lease.Sub(now)}
		case now.Sub(h.used) > keepHandle:
			delete(m.held, id)
		}
	}
	m.mu.Unlock()
	lost, err := m.st.Renew(ctx, m.id, uses)
	if err != nil {
		return err
	}
	for _, id := range lost {
		delete(uses, id)
		if _, err := m.endIfOther(ctx, of[id]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, u := range uses {
		if h := m.held[id]; h != nil && h.generation == u.Generation && now.Add(u.Lease).After(h.lease) {
			h.lease = now.Add(u.Lease)
		}
	}
	return nil
}

// endIfOther ends the uses of a session that another gateway has closed, purged or
// started anew, and reports whether it did.
func (m *Manager) endIfOther(ctx context.Context, h *held) (bool, error) {
	r, err := m.st.Get(ctx, h.id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, storeError(err)
	}
	if err == nil && r.State.Open() && r.Generation == h.generation {
		return false, nil
	}
	h.end()
	m.forget(h)
	return true, nil
}

// keepHandle is how long the handle of a session that nobody uses is kept: making
// one costs an attach at its first operation.
const keepHandle = 10 * time.Minute
