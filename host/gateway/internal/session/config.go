package session

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// Config says what a [Manager] works with.
type Config struct {
	// Host opens the workspaces. One that has Stop and OpenStored, as host.Host, can
	// hibernate sessions and read files of those that sleep.
	Host workspace.Host
	// Store keeps the records. The manager does not close it.
	Store *store.Store
	// Runtimes are what a client may ask for.
	Runtimes []Runtime
	// Policy is what holds until a client changes it, DefaultRuntime included.
	Policy Policy
	// Token is the service's.
	Token string
	// Logger is quiet if nil.
	Logger hclog.Logger
	// Timing is for tests. Zero fields are the defaults.
	Timing Timing
}

// Runtime is an alias under which clients open sessions.
type Runtime struct {
	Alias    string
	Provider string
	// Config overrides the provider's per_workspace keys, env too.
	Config      map[string]any
	Description string
}

// Timing holds the periods of a manager's own work.
type Timing struct {
	// Lease is how long a claim on a record holds that nobody renews: 15 s. What a
	// gateway was doing when it died waits so long.
	Lease time.Duration
	// Renew is between two renewals, and between two looks at the policy: 5 s.
	Renew time.Duration
	// Sweep is between two looks for sessions that are idle or were left: 5 s.
	Sweep time.Duration
	// Abandoned is how long an opening that its gateway left waits for its client
	// to come back: 2 min.
	Abandoned time.Duration
	// Poll is between two looks at whether another gateway wants a run of ours
	// stopped, or has done what we wait for: 100 ms.
	Poll time.Duration
}

// withDefaults fills in what is zero.
func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Lease, 15 * time.Second}, {&t.Renew, 5 * time.Second}, {&t.Sweep, 5 * time.Second},
		{&t.Abandoned, 2 * time.Minute}, {&t.Poll, 100 * time.Millisecond},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}
