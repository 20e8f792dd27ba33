package store

import (
	"slices"
	"time"
)

// State is where a session's record stands.
type State string

// The states. Those that somebody is at work in have an owner with a lease: one
// whose lease has run out may be taken over by anybody.
const (
	Opening     State = "opening"     // its workspace is being made
	Running     State = "running"     // its workspace runs, or starts at its next use
	Hibernating State = "hibernating" // its workspace is being stopped
	Hibernated  State = "hibernated"  // its workspace is stopped; a use wakes it
	Waking      State = "waking"      // its workspace is being started
	Closing     State = "closing"     // its workspace is being stopped, for good as far as clients know
	Closed      State = "closed"      // no session any more; what it made is kept for an attach
	Purging     State = "purging"     // its workspace is being destroyed, then the record goes
	Gone        State = "gone"        // its workspace was found gone
)

// resident are those whose workspace costs something, open those that a client
// may use.
var (
	resident = []State{Opening, Running, Hibernating, Waking, Closing, Purging}
	open     = []State{Opening, Running, Hibernating, Hibernated, Waking, Gone}
)

// Open reports whether a session in this state counts as one.
func (s State) Open() bool { return slices.Contains(open, s) }

// Resident reports whether its workspace counts as running.
func (s State) Resident() bool { return slices.Contains(resident, s) }

// Record is a session's.
type Record struct {
	ID    string
	State State
	// Version goes up with every change but those of [Store.Touch]. It begins at the
	// moment of the claim, so that who read a record that was purged and claimed again
	// since does not take the new one for it.
	Version int64
	// Generation goes up when the workspace is started anew: a handle of another
	// generation is not to be used. It begins as Version does.
	Generation int64
	Runtime    string
	Provider   string
	Tenant     string
	// Token is what its workspace is made with; Ref is its ref in text, once known.
	Token, Ref string
	// Nonce is what makes its own access token differ from that of another session of
	// the same id. It is no secret.
	Nonce string
	// Anonymous is one whose id no client chose.
	Anonymous bool
	// CanStop says that its provider can stop the workspace and keep its files.
	CanStop bool

	// These are the store's own, and not written from here.
	Created, Active time.Time
	Since           time.Time // in this state
	BusyUntil       time.Time // in use until then, by BusyBy ("*" is several gateways)
	BusyBy          string
	Owner           string
	LeaseUntil      time.Time
	// Now is when the record was read.
	Now time.Time
}

// Held reports whether somebody is at work on the record.
func (r Record) Held() bool { return r.LeaseUntil.After(r.Now) }

// Busy reports whether somebody uses the session.
func (r Record) Busy() bool { return r.BusyUntil.After(r.Now) }

// Idle is how long it has not been used.
func (r Record) Idle() time.Duration { return max(0, r.Now.Sub(r.Active)) }

const columns = `id, state, version, generation, runtime, provider, tenant, token, ref, nonce, anonymous, can_stop,
	created_at, active_at, since_at, busy_until, busy_by, owner, lease_until, {now}`

// scan reads a row of columns.
func scan(row scanner) (Record, error) {
	var r Record
	var anonymous, canStop int64
	var created, active, since, busy, lease, now int64
	err := row.Scan(&r.ID, &r.State, &r.Version, &r.Generation, &r.Runtime, &r.Provider, &r.Tenant, &r.Token, &r.Ref, &r.Nonce, &anonymous, &canStop,
		&created, &active, &since, &busy, &r.BusyBy, &r.Owner, &lease, &now)
	r.Anonymous, r.CanStop = anonymous != 0, canStop != 0
	r.Created, r.Active, r.Since = time.UnixMicro(created), time.UnixMicro(active), time.UnixMicro(since)
	r.BusyUntil, r.LeaseUntil, r.Now = time.UnixMicro(busy), time.UnixMicro(lease), time.UnixMicro(now)
	return r, err
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
