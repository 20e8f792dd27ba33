package session

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// create makes the workspace of a record that this manager owns, and has it run.
func (m *Manager) create(ctx context.Context, r store.Record) (store.Record, error) {
	ws, err := m.config.Host.Workspace(r.Provider, workspace.WithToken(r.Token), workspace.WithConfig(m.runtimes[r.Runtime].Config))
	if err != nil {
		return r, m.abort(ctx, r, nil, err)
	}
	features, err := ws.Features(ctx) // the first operation: it creates
	ref, made := ws.Ref()
	if err != nil || !made {
		return r, m.abort(ctx, r, ws, err)
	}
	r.Ref, r.CanStop = ref.String(), features.Has(workspace.FeatureStop)
	return m.running(ctx, r, ws)
}

// running writes down that a workspace is there, and holds it for a use to come.
func (m *Manager) running(ctx context.Context, r store.Record, ws workspace.Workspace) (store.Record, error) {
	r.State = store.Running
	r.Generation++
	var after store.Record
	var since time.Time
	err := m.settle(ctx, func(ctx context.Context) (err error) {
		since = time.Now()
		after, err = m.st.Swap(ctx, r, store.Options{Gateway: m.id, Busy: m.timing.Lease, Active: true})
		return err
	})
	if conflict(err) {
		// Written although the answer was lost, or somebody took it over while this
		// gateway was stalled: by its token theirs is the same workspace.
		now, readErr := m.st.Get(ctx, r.ID)
		if readErr == nil && now.State == store.Running && now.Token == r.Token {
			return now, nil
		}
	}
	if err != nil {
		return r, err
	}
	m.hold(after, ws, since)
	return after, nil
}

// abort undoes a claim whose workspace could not be made, and returns why.
func (m *Manager) abort(ctx context.Context, r store.Record, ws workspace.Workspace, cause error) error {
	if cause == nil {
		cause = errors.New("the host returned a workspace without a ref")
	}
	failure := workspaceError("make the workspace of", r.ID, cause)
	ctx = context.WithoutCancel(ctx) // it may be the host's end that is the cause
	err := m.settle(ctx, func(ctx context.Context) error {
		if ws != nil {
			if ref, made := ws.Ref(); made { // what came after the create failed
				r.Ref, r.State = ref.String(), store.Purging
				_, err := m.st.Swap(ctx, r, store.Options{})
				return err
			}
		}
		if unknown(cause) {
			// It may be there. Whoever opens this session next gets it; if nobody
			// does, the sweep finds it by its token.
			_, err := m.st.Swap(ctx, r, store.Options{})
			return err
		}
		return m.st.Delete(ctx, r)
	})
	if err != nil && !conflict(err) {
		m.log.Error("a session that could not be opened could not be given up", "session", r.ID, "error", err)
	}
	return failure
}

// unknown reports whether a create that failed may have made something all the
// same (contract L2: one that the provider itself failed leaves nothing).
func unknown(err error) bool {
	var plugin *workspace.PluginError
	return errors.As(err, &plugin) && plugin.MayHaveExecuted || ended(err)
}

// start attaches to the workspace of a record that this manager owns, so that it
// runs. One that cannot be started now goes back to where it was.
func (m *Manager) start(ctx context.Context, r store.Record) (store.Record, error) {
	back := store.Hibernated
	if r.State == store.Opening {
		back = store.Closed
	}
	ws, err := m.attach(r)
	if err == nil {
		_, err = ws.Features(ctx) // the first operation: it attaches
	}
	if err == nil {
		return m.running(ctx, r, ws)
	}
	failure := workspaceError("start the workspace of", r.ID, err)
	gone := errors.Is(err, workspace.ErrUnavailable)
	r.State = back
	if gone {
		r.State, failure = store.Gone, errGone(r.ID, err)
		m.log.Warn("the workspace of a session is gone", "session", r.ID, "ref", r.Ref, "error", err)
	}
	err = m.settle(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := m.st.Swap(ctx, r, store.Options{})
		return err
	})
	if err != nil {
		return r, err
	}
	if gone && back == store.Closed {
		return r, errAgain // the opener is told by the record, or gets a fresh one
	}
	return r, failure
}

// wake starts the workspace of a hibernated session.
func (m *Manager) wake(ctx context.Context, r store.Record) error {
	_, err := do(ctx, m, r.ID, func(ctx context.Context) (store.Record, error) {
		r.State = store.Waking
		taken, err := m.admit(ctx, func(_ Policy, o store.Options) (store.Record, error) {
			return m.st.Swap(ctx, r, o)
		})
		if err != nil {
			return taken, err
		}
		return m.start(ctx, taken)
	})
	return err
}
