package supervisor

import (
	"time"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// State is what a provider's plugin does.
type State string

// The states of a plugin.
const (
	Stopped      State = "stopped"      // not started, or ended in order
	Starting     State = "starting"     // a start is under way
	Running      State = "running"      // it answers
	Unresponsive State = "unresponsive" // it missed its last health check
	Failed       State = "failed"       // it died, or did not start; the next call starts it
	Quarantined  State = "quarantined"  // it died too often; no call starts it
	Closed       State = "closed"       // the host is shut down
)

// Status is what is known of a provider's plugin at one moment.
type Status struct {
	// Provider is the configured name.
	Provider string
	State    State
	// PID is zero unless a process runs.
	PID int
	// Plugin and Version are what Describe told last.
	Plugin, Version string
	// Protocol is the version of berth.v1's handshake in use; zero before.
	Protocol int
	// Path is the binary that was started last, Digest that of its bytes: empty
	// until it has been computed.
	Path, Digest string
	// Pin is what that binary is pinned to, if it is Pinned.
	Pin    catalog.Pin
	Pinned bool
	// Features and Environment are what Describe told last.
	Features, Environment []string
	// Started is when the running process was; zero unless it runs.
	Started time.Time
	// Since is when the state began.
	Since time.Time
	// Restarts counts the starts after a death. That of a swap is none.
	Restarts int
	// Leaving counts the plugins that were swapped out, or stopped for want of
	// use, and have not ended yet.
	Leaving int
	// SwapError is why the newest binary does not serve; nil if it does.
	SwapError error
	// Quarantine is why no call starts the plugin; nil unless that is so.
	Quarantine *QuarantineError
	// Configured is what it answered to its configuration last, Sent the names of
	// the conventional variables that it was given with that.
	Configured *berthv1.ConfigureResponse
	Sent       []string
	// LastError is why it died or did not start, last; nil if it never did.
	LastError error
	// Calls is how many are in flight.
	Calls int
	// LogDropped counts the log records of this process that the logger was too
	// slow for.
	LogDropped uint64

	digest  func() string
	dropped func() uint64
}

// Status tells what the plugin does. It never waits.
func (s *Supervisor) Status() Status {
	st := *s.status.Load()
	st.Calls = int(s.calls.Load())
	if st.digest != nil {
		st.Digest = st.digest()
	}
	if st.dropped != nil {
		st.LogDropped = st.dropped()
	}
	return st
}

// publish is called with s.mu held, or before anyone else knows s.
func (s *Supervisor) publish(st Status) { s.status.Store(&st) }

// update changes the published status. It is called with s.mu held.
func (s *Supervisor) update(change func(*Status)) {
	st := *s.status.Load()
	before := st.State
	if change(&st); st.State != before {
		st.Since = time.Now()
	}
	s.status.Store(&st)
}
