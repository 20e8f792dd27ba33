package session

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
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

// OpenRequest asks for a session.
type OpenRequest struct {
	// ID is chosen for the client if empty. Runtime is the policy's default if empty.
	ID, Runtime, Tenant string
	// Reuse takes a session that is there; Attach takes nothing else.
	Reuse, Attach bool
}

// Counts tells how many sessions there are.
type Counts struct {
	Resident int // whose workspace runs
	Open     int // hibernated ones too
}

// Event is one operation in a session's log, without contents.
type Event struct {
	Seq      int64 // set by the log
	At       time.Time
	Op       string
	Target   string
	OK       bool
	Detail   string
	Duration time.Duration
}

// RunInfo is a run in a listing.
type RunInfo struct {
	Session, ID string
	// HostRun is the host's own id of it, once known: for workspace.Runs.
	HostRun  string
	Args     []string
	Detached bool
	Started  time.Time
	// End is nil while it goes. Ended runs are told for some minutes.
	End *RunEnd
}

// RunEnd is how a run ended.
type RunEnd struct {
	At       time.Time // set by the manager
	ExitCode *int      // nil if it has none
	Detail   string    // such as "exit 0", "timed out", or an error's text
}

// Manager keeps sessions. All methods may be called concurrently; whatever they
// return that a client decides on is an *[Error].
type Manager struct{}

// New makes a manager and starts its loops.
func New(_ Config) (*Manager, error) { return nil, errNotYet }

var errNotYet = errors.New("not yet")

// Shutdown waits until ctx ends for what is being opened or closed, and gives back
// what this manager holds in the store. Workspaces live on.
func (m *Manager) Shutdown(_ context.Context) error { return errNotYet }

// Open opens a session, or comes back to one, and returns it with its own token.
func (m *Manager) Open(_ context.Context, _ OpenRequest) (Info, string, error) {
	return Info{}, "", errNotYet
}

// Get returns an open session.
func (m *Manager) Get(_ context.Context, _ string) (Info, error) { return Info{}, errNotYet }

// List returns the open sessions, oldest first.
func (m *Manager) List(_ context.Context) ([]Info, error) { return nil, errNotYet }

// Count counts the open sessions.
func (m *Manager) Count(_ context.Context) (Counts, error) { return Counts{}, errNotYet }

// Close ends a session. Its files are kept, for an attach, unless purge.
func (m *Manager) Close(_ context.Context, _ string, _ bool) error { return errNotYet }

// Authorize checks a client's token: the service's, or that of the session. For an
// empty id only the service's will do. A session that is not there is Unauthorized
// to all but the service's token, and nothing is told of it here: see Get.
func (m *Manager) Authorize(_ context.Context, _, _ string) error { return errNotYet }

// Acquire marks a session as in use, wakes it if it is hibernated, and returns its
// workspace. Release must be called.
func (m *Manager) Acquire(_ context.Context, _ string) (*Use, error) { return nil, errNotYet }

// Use is a session in use: it is neither hibernated nor closed for being idle.
type Use struct {
	// ID and Runtime are the session's.
	ID, Runtime string
	// Workspace has the runtime's env already.
	Workspace workspace.Workspace
}

// Release ends the use. More than once is once.
func (u *Use) Release() {}

// Context returns one that ends with ctx, and when the session is closed or purged
// through any gateway; its cause is a Gone [Error] then.
func (u *Use) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Check returns what an error of the workspace means for the session: if that is
// gone, or was closed meanwhile, a Gone [Error], and the session is marked. Others,
// nil too, come back as they are.
func (u *Use) Check(_ context.Context, err error) error { return err }

// Stored is the files of a session as they are kept, for reading.
type Stored struct {
	workspace.Stored
	// Root is where relative paths begin; empty if that is not known without
	// starting the workspace.
	Root string
}

// Release ends the reading. More than once is once.
func (s *Stored) Release() {}

// Stored opens the files of an open or closed session for reading: those that are
// kept where the provider can read them, else those of the workspace, woken for it.
func (m *Manager) Stored(_ context.Context, _ string) (*Stored, error) { return nil, errNotYet }

// Policy returns what is in force.
func (m *Manager) Policy() Policy { return Policy{} }

// SetPolicy changes the policy, for all gateways of the store, until it is changed
// again.
func (m *Manager) SetPolicy(_ context.Context, _ PolicyUpdate) (Policy, error) {
	return Policy{}, errNotYet
}

// Record adds to a session's log. It never waits.
func (m *Manager) Record(_ string, _ Event) {}

// Events returns the log after a sequence number, oldest first, and the latest
// number.
func (m *Manager) Events(_ context.Context, _ string, _ int64) ([]Event, int64, error) {
	return nil, 0, errNotYet
}

// RunBegin enters a run that is about to start, so that it is listed and can be
// stopped through any gateway: cancel is called for that, at most once, and must not
// block. done must be called when the run has ended.
func (m *Manager) RunBegin(_ context.Context, _ RunInfo, _ func()) (done func(RunEnd), err error) {
	return nil, errNotYet
}

// RunStarted tells the host's own id of a run, once it is known.
func (m *Manager) RunStarted(_ context.Context, _, _, _ string) error { return errNotYet }

// StopRun stops a run, wherever it goes, and waits a moment for its end. One that is
// not known, or has ended, is success.
func (m *Manager) StopRun(_ context.Context, _, _ string) error { return errNotYet }

// Runs returns the runs of a session, oldest first: those that go, and those that
// ended within the last minutes.
func (m *Manager) Runs(_ context.Context, _ string) ([]RunInfo, error) { return nil, errNotYet }
