package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// Close ends a session: what runs in it ends in a Gone [Error]. Its files are kept,
// for an attach, unless purge. A purge that the provider cannot carry out now is
// Transient, and is tried again until it is done: the session is not to be found
// meanwhile.
func (m *Manager) Close(ctx context.Context, id string, purge bool) error {
	for {
		r, err := m.st.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return errNotFound(id)
		}
		if err != nil {
			return storeError(err)
		}
		switch r.State {
		case store.Opening:
			if r.Held() {
				return errOpening(id)
			}
			if !purge {
				return errNotFound(id)
			}
		case store.Hibernating, store.Waking, store.Closing:
			if r.Held() {
				if err := m.await(ctx, id); err != nil {
					return err
				}
				continue
			}
			if r.State == store.Closing && !purge {
				return errNotFound(id)
			}
		case store.Closed:
			if !purge {
				return errNotFound(id)
			}
		case store.Purging:
			if !purge {
				return errNotFound(id)
			}
			if r.Held() && r.Owner != "" {
				if err := m.await(ctx, id); err != nil {
					return err
				}
				continue
			}
		}
		_, err = do(ctx, m, id, func(ctx context.Context) (struct{}, error) {
			if purge {
				return struct{}{}, m.purge(ctx, r)
			}
			return struct{}{}, m.shut(ctx, r, store.Options{})
		})
		if !conflict(err) {
			return storeError(err)
		}
	}
}

// shut closes a session and keeps its files; o may say that it must be unused.
func (m *Manager) shut(ctx context.Context, r store.Record, o store.Options) error {
	if r.State == store.Gone { // there is nothing to keep
		return m.st.Delete(ctx, r)
	}
	stop := r.CanStop && r.State != store.Hibernated
	r.State = store.Closed
	if stop {
		r.State, o.Gateway, o.Lease = store.Closing, m.id, m.timing.Lease
	}
	r, err := m.st.Swap(ctx, r, o)
	if err != nil {
		return err
	}
	if err := m.endUses(ctx, r.ID); err != nil {
		m.log.Warn("the runs of a closed session could not be told", "session", r.ID, "error", err)
	}
	if !stop {
		return nil
	}
	if err := m.stop(ctx, r); err != nil {
		// Closed all the same: to its client it is. The sweep stops it later.
		m.log.Warn("the workspace of a closed session could not be stopped; trying again", "session", r.ID, "error", err)
		return m.pause(ctx, r)
	}
	r.State = store.Closed
	return m.settle(ctx, func(ctx context.Context) error {
		_, err := m.st.Swap(ctx, r, store.Options{})
		return err
	})
}

// stop stops a workspace. Gone, or not to be stopped, is as good.
func (m *Manager) stop(ctx context.Context, r store.Record) error {
	host, ok := m.config.Host.(stopper)
	if !ok {
		return nil
	}
	ref, err := workspace.ParseRef(r.Ref)
	if err != nil {
		return err
	}
	if err := host.Stop(ctx, ref); err != nil && !errors.Is(err, workspace.ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// endUses ends the uses of a session, here and at other gateways.
func (m *Manager) endUses(ctx context.Context, id string) error {
	m.mu.Lock()
	h := m.held[id]
	delete(m.held, id)
	m.mu.Unlock()
	if h != nil {
		h.end()
	}
	for key, run := range m.localRuns() {
		if key.Session == id {
			run.stop()
		}
	}
	_, err := m.st.StopRun(ctx, id, "", store.StopClosed)
	return err
}

// retryPause is between two tries to destroy or stop something whose provider does
// not answer.
const retryPause = 30 * time.Second

// pause leaves a record as it is for a while.
func (m *Manager) pause(ctx context.Context, r store.Record) error {
	return m.settle(ctx, func(ctx context.Context) error {
		_, err := m.st.Swap(ctx, r, store.Options{Lease: min(retryPause, 2*m.timing.Lease)})
		return err
	})
}

// purge destroys a session's workspace, and then its record.
func (m *Manager) purge(ctx context.Context, r store.Record) error {
	r.State = store.Purging
	r, err := m.st.Swap(ctx, r, store.Options{Gateway: m.id, Lease: m.timing.Lease})
	if err != nil {
		return err
	}
	if err := m.endUses(ctx, r.ID); err != nil {
		m.log.Warn("the runs of a purged session could not be told", "session", r.ID, "error", err)
	}
	r, err = m.destroy(ctx, r)
	if err != nil {
		m.log.Warn("the workspace of a purged session could not be destroyed; trying again", "session", r.ID, "error", err)
		failure := &Error{Kind: Transient, Text: fmt.Sprintf("destroy the workspace of session %s: %v; it will be tried again", r.ID, err), Err: err}
		if err := m.pause(context.WithoutCancel(ctx), r); err != nil && !conflict(err) {
			return errors.Join(failure, err)
		}
		return failure
	}
	return m.settle(ctx, func(ctx context.Context) error { return m.st.Delete(ctx, r) })
}

// destroy destroys what a record's ref or, before there was one, its token made.
func (m *Manager) destroy(ctx context.Context, r store.Record) (store.Record, error) {
	if r.Ref == "" {
		ws, err := m.config.Host.Workspace(r.Provider, workspace.WithToken(r.Token), workspace.WithConfig(m.runtimes[r.Runtime].Config))
		if err != nil {
			return r, err
		}
		// The same token gives the same workspace, or a new one to be destroyed; a
		// create that fails leaves nothing (contract L2).
		_, err = ws.Features(ctx)
		ref, made := ws.Ref()
		if !made {
			if err != nil && !unknown(err) && !errors.Is(err, workspace.ErrTransient) {
				return r, nil
			}
			return r, errors.Join(err, ctx.Err())
		}
		r.Ref = ref.String()
	}
	ref, err := workspace.ParseRef(r.Ref)
	if err != nil {
		return r, err
	}
	return r, m.config.Host.Destroy(ctx, ref)
}
