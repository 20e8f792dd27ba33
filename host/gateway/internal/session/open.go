package session

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// idPattern is the grammar of session ids and tenants.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// OpenRequest asks for a session.
type OpenRequest struct {
	// ID is chosen for the client if empty. Runtime is the policy's default if empty.
	ID, Runtime, Tenant string
	// Reuse takes a session that is there; Attach takes nothing else.
	Reuse, Attach bool
}

// Open opens a session, or comes back to one, and returns it with its own token.
// What it begins goes on when ctx ends, for the client to ask again; a session whose
// id nobody was told is purged then.
func (m *Manager) Open(ctx context.Context, req OpenRequest) (Info, string, error) {
	r, err := m.open(ctx, req)
	if err != nil {
		return Info{}, "", storeError(err)
	}
	return m.info(r), m.token(r), nil
}

func (m *Manager) open(ctx context.Context, req OpenRequest) (store.Record, error) {
	for what, value := range map[string]string{"session id": req.ID, "tenant": req.Tenant} {
		if value != "" && !idPattern.MatchString(value) {
			return store.Record{}, &Error{Kind: Invalid, Text: fmt.Sprintf("%s %.80q: want %s", what, value, idPattern)}
		}
	}
	if req.Runtime != "" {
		if _, ok := m.runtimes[req.Runtime]; !ok {
			return store.Record{}, errUnknownRuntime(req.Runtime, m.runtimes)
		}
	}
	if req.ID == "" {
		if req.Attach {
			return store.Record{}, &Error{Kind: NeedsID, Text: "attach needs the session_id to attach to"}
		}
		return m.claim(ctx, req, "s-"+randomHex(8), true)
	}
	for {
		r, err := m.st.Get(ctx, req.ID)
		switch {
		case errors.Is(err, store.ErrNotFound) && req.Attach:
			return store.Record{}, errNothing(req.ID)
		case errors.Is(err, store.ErrNotFound):
			r, err = m.claim(ctx, req, req.ID, false)
		case err == nil:
			r, err = m.reopen(ctx, req, r)
		}
		if !conflict(err) && !errors.Is(err, errAgain) {
			return r, err
		}
		if err := ctx.Err(); err != nil {
			return store.Record{}, err
		}
	}
}

// errAgain is for a record that is to be read again.
var errAgain = errors.New("the record is to be read again")

// claim enters a record and makes its workspace.
func (m *Manager) claim(ctx context.Context, req OpenRequest, id string, anonymous bool) (store.Record, error) {
	return do(ctx, m, id, func(taskCtx context.Context) (store.Record, error) {
		r, err := m.admit(taskCtx, func(p Policy, o store.Options) (store.Record, error) {
			alias := req.Runtime
			if alias == "" {
				alias = p.DefaultRuntime
			}
			return m.st.Claim(taskCtx, store.Record{
				ID: id, State: store.Opening, Runtime: alias, Provider: m.runtimes[alias].Provider, Tenant: req.Tenant,
				Token: workspace.NewToken(), Nonce: newNonce(), Anonymous: anonymous,
			}, o)
		})
		if err != nil {
			return r, err
		}
		r, err = m.create(taskCtx, r)
		if err == nil && anonymous && ctx.Err() != nil {
			// Nobody is told its id, so nobody would ever close it.
			return r, errors.Join(ctx.Err(), m.purge(taskCtx, r))
		}
		return r, err
	})
}

// reopen comes back to a session that is there.
func (m *Manager) reopen(ctx context.Context, req OpenRequest, r store.Record) (store.Record, error) {
	if r.State.Open() && r.State != store.Opening && !req.Reuse && !req.Attach {
		return r, &Error{Kind: Exists, Text: "Session exists: " + r.ID}
	}
	if r.State == store.Gone || r.State == store.Purging {
		if req.Attach {
			return r, errNothing(r.ID)
		}
	} else if req.Runtime != "" && req.Runtime != r.Runtime {
		return r, &Error{Kind: OtherRuntime, Text: fmt.Sprintf("Session %s is on runtime '%s', not '%s': close it with purge before changing its runtime", r.ID, r.Runtime, req.Runtime)}
	}
	switch r.State {
	case store.Opening:
		if r.Held() {
			return r, errOpening(r.ID)
		}
		// Whoever was opening it is gone: the same token gives the same workspace.
		return m.resume(ctx, r, false)
	case store.Gone:
		return m.renewGone(ctx, req, r)
	case store.Closed:
		return m.resume(ctx, comeBack(r, req), true)
	case store.Closing:
		if !r.Held() {
			return m.resume(ctx, comeBack(r, req), true)
		}
		return r, errors.Join(m.await(ctx, r.ID), errAgain)
	case store.Purging:
		if !r.Held() || r.Owner == "" {
			return r, errOpening(r.ID) // its provider does not answer: the sweep goes on with it
		}
		return r, errors.Join(m.await(ctx, r.ID), errAgain)
	default:
		u, err := m.Acquire(ctx, r.ID)
		if err != nil {
			var known *Error
			if errors.As(err, &known) && (known.Kind == Gone || known.Kind == NotFound) {
				return r, errAgain
			}
			return r, err
		}
		defer u.Release()
		now, err := m.st.Get(ctx, r.ID)
		if errors.Is(err, store.ErrNotFound) { // purged meanwhile
			err = errAgain
		}
		return now, err
	}
}

// comeBack is a closed session's record as a new opening has it.
func comeBack(r store.Record, req OpenRequest) store.Record {
	if req.Tenant != "" {
		r.Tenant = req.Tenant
	}
	r.Nonce = newNonce() // who had the old token was told that the session is no more
	return r
}

// resume takes a record over and makes or starts its workspace.
func (m *Manager) resume(ctx context.Context, r store.Record, fresh bool) (store.Record, error) {
	if _, ok := m.runtimes[r.Runtime]; !ok && r.Ref == "" {
		return r, errUnknownRuntime(r.Runtime, m.runtimes)
	}
	return do(ctx, m, r.ID, func(ctx context.Context) (store.Record, error) {
		r.State = store.Opening
		taken, err := m.admit(ctx, func(_ Policy, o store.Options) (store.Record, error) {
			o.Fresh = fresh
			return m.st.Swap(ctx, r, o)
		})
		if err != nil {
			return taken, err
		}
		if taken.Ref == "" {
			return m.create(ctx, taken)
		}
		return m.start(ctx, taken)
	})
}

// renewGone makes a fresh workspace for a session whose own is gone.
func (m *Manager) renewGone(ctx context.Context, req OpenRequest, r store.Record) (store.Record, error) {
	r = comeBack(r, req)
	if req.Runtime != "" {
		r.Runtime = req.Runtime
	}
	r.Provider, r.Token, r.Ref = m.runtimes[r.Runtime].Provider, workspace.NewToken(), ""
	return m.resume(ctx, r, true)
}

// admitTries is how often a session that does not fit is tried again after room was
// made: another opening may have taken it.
const admitTries = 16

// admit claims or changes a record under the ceilings, and makes room for it.
func (m *Manager) admit(ctx context.Context, change func(Policy, store.Options) (store.Record, error)) (store.Record, error) {
	p, err := m.loadPolicy(ctx)
	if err != nil {
		return store.Record{}, err
	}
	o := store.Options{
		Gateway: m.id, Lease: m.timing.Lease, Active: true,
		Limits: &store.Limits{Resident: p.MaxSessions, Open: p.MaxOpenSessions, Tenant: p.MaxSessionsPerTenant},
	}
	for tries := 0; ; tries++ {
		r, err := change(p, o)
		var ceiling *store.CeilingError
		if !errors.As(err, &ceiling) {
			return r, err
		}
		made := false
		if tries < admitTries {
			if made, err = m.makeRoom(ctx, p, ceiling.Which); err != nil {
				return r, err
			}
		}
		if !made {
			return r, errCeiling(ceiling)
		}
	}
}

func errCeiling(c *store.CeilingError) *Error {
	text := map[string]string{
		store.LimitResident: "%d of at most %d sessions run, and none has been idle for long enough to be put to sleep: close one, or come back later",
		store.LimitOpen:     "%d of at most %d sessions are open, and none is asleep: close one, or come back later",
		store.LimitTenant:   "this tenant has %d of at most %d sessions: close one before another is opened",
	}[c.Which]
	return &Error{Kind: Ceiling, Text: fmt.Sprintf(text, c.Held, c.Limit), Err: c}
}
