package session

// Kind says what kind of answer an [Error] is.
type Kind string

// The kinds.
const (
	NotFound        Kind = "not-found"         // no such session: closed, purged, or never there
	Exists          Kind = "exists"            // opened without reuse or attach
	Opening         Kind = "opening"           // somebody is making, waking, closing or purging it: ask again
	OtherRuntime    Kind = "other-runtime"     // it has another runtime than the one asked for
	UnknownRuntime  Kind = "unknown-runtime"   // no such alias
	NothingToAttach Kind = "nothing-to-attach" // attach to what is not there, or is gone
	NeedsID         Kind = "needs-id"          // attach without an id
	Ceiling         Kind = "ceiling"           // too many sessions, of all or of a tenant
	Unauthorized    Kind = "unauthorized"      // no token, or a wrong one
	Invalid         Kind = "invalid"           // an id, a tenant or a policy that cannot be
	Gone            Kind = "gone"              // its workspace is gone, or was closed during the call
	Failed          Kind = "failed"            // its workspace could not be made
	Transient       Kind = "transient"         // try again: nothing was carried out
	RunExists       Kind = "run-exists"        // a run of that id is going
)

// Error is an answer that a client decides on. Text is for the client: it holds
// nothing secret.
type Error struct {
	Kind Kind
	Text string
	Err  error // the cause, if there is one
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
