package session

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// Stored is the files of a session, for reading.
type Stored struct {
	workspace.Stored
	// Woken says that the workspace had to run for it.
	Woken bool

	release func()
	once    sync.Once
}

// Release ends the reading. More than once is once.
func (s *Stored) Release() { s.once.Do(s.release) }

// Stored opens the files of an open or closed session for reading: those that are
// kept where the provider can read them, else those of the workspace, woken for it,
// and put to sleep again if the session is closed.
func (m *Manager) Stored(ctx context.Context, id string) (*Stored, error) {
	for {
		r, err := m.st.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && (r.Ref == "" || r.State == store.Purging || r.State == store.Gone) {
			return nil, errNotFound(id)
		}
		if err != nil {
			return nil, storeError(err)
		}
		ref, err := workspace.ParseRef(r.Ref)
		if err != nil {
			return nil, workspaceError("reach the workspace of", id, err)
		}
		if host, ok := m.config.Host.(storedOpener); ok {
			files, err := host.OpenStored(ctx, ref)
			if err == nil {
				return &Stored{Stored: files, release: func() {}}, nil
			}
			if errors.Is(err, workspace.ErrUnavailable) {
				return nil, errGone(id, err)
			}
			if !errors.Is(err, errors.ErrUnsupported) {
				return nil, workspaceError("read the files of", id, err)
			}
		}
		s, err := m.storedByWaking(ctx, r)
		if s != nil || err != nil {
			return s, err
		}
		if err := m.await(ctx, id); err != nil {
			return nil, err
		}
	}
}

// storedByWaking starts the workspace. None and no error: somebody is at work in
// the session.
func (m *Manager) storedByWaking(ctx context.Context, r store.Record) (*Stored, error) {
	switch r.State {
	case store.Running, store.Hibernated, store.Hibernating, store.Waking:
		u, err := m.Acquire(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		return &Stored{Stored: u.Workspace, Woken: true, release: u.Release}, nil
	case store.Closed:
	default:
		return nil, nil //nolint:nilnil // neither files nor a fault
	}
	ws, err := m.attach(r)
	if err != nil {
		return nil, workspaceError("reach the workspace of", r.ID, err)
	}
	if !r.CanStop {
		return &Stored{Stored: ws, Woken: true, release: func() {}}, nil
	}
	// As a session that is being closed, nobody opens it under the reader, and if this
	// gateway dies, another one stops it.
	return m.borrow(ctx, r, ws)
}

// borrow keeps a closed session's record until the reader releases it, and stops its
// workspace then.
func (m *Manager) borrow(ctx context.Context, r store.Record, ws workspace.Workspace) (*Stored, error) {
	released := make(chan struct{})
	taken := make(chan error, 1)
	begun := m.background(r.ID, func(ctx context.Context) {
		r.State = store.Closing
		held, err := m.st.Swap(ctx, r, store.Options{Gateway: m.id, Lease: m.timing.Lease})
		taken <- err
		if err != nil {
			return
		}
		select {
		case <-released:
		case <-ctx.Done():
		}
		if err := m.shut(context.WithoutCancel(ctx), held, store.Options{}); err != nil && !conflict(err) {
			m.log.Warn("a workspace that was started to be read could not be stopped; trying again", "session", r.ID, "error", err)
		}
	})
	if !begun {
		return nil, nil //nolint:nilnil // as in storedByWaking
	}
	release := sync.OnceFunc(func() { close(released) })
	select {
	case err := <-taken:
		if conflict(err) {
			return nil, nil //nolint:nilnil // as in storedByWaking
		}
		if err != nil {
			return nil, storeError(err)
		}
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
	return &Stored{Stored: ws, Woken: true, release: release}, nil
}
