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

// Policy holds ceilings and lifetimes. A nil one means none.
type Policy struct {
	// DefaultRuntime is for a session that names none.
	DefaultRuntime string
	// MaxSessions bounds the sessions whose workspace runs. When it is reached, the
	// session that has been idle longest, for EvictIdleAfter at least, is hibernated.
	MaxSessions *int
	// MaxOpenSessions bounds those that are open, hibernated ones too. When it is
	// reached, the one that sleeps longest is closed.
	MaxOpenSessions *int
	// MaxSessionsPerTenant bounds the open ones of one tenant.
	MaxSessionsPerTenant *int
	// EvictIdleAfter is when a session without activity is hibernated, on providers
	// that can stop a workspace.
	EvictIdleAfter *time.Duration
	// IdleTimeout is when a session without activity is closed. Its files are kept.
	IdleTimeout *time.Duration
	// ExecuteTimeout bounds every run.
	ExecuteTimeout time.Duration
	// MaxReadBytes bounds native reads and writes of files.
	MaxReadBytes int64
	// WorkspaceTTL is when the workspace of a closed session is destroyed, counted
	// from its last activity; ContainerTTL the same, counted from its closing.
	WorkspaceTTL, ContainerTTL *time.Duration
}

// Optional is a field of an update, which is changed only if Named.
type Optional[T any] struct {
	Named bool
	Value T
}

// To returns an update to a value.
func To[T any](value T) Optional[T] { return Optional[T]{Named: true, Value: value} }

// PolicyUpdate changes the fields of a [Policy] that it names.
type PolicyUpdate struct {
	DefaultRuntime       Optional[string]
	MaxSessions          Optional[*int]
	MaxOpenSessions      Optional[*int]
	MaxSessionsPerTenant Optional[*int]
	EvictIdleAfter       Optional[*time.Duration]
	IdleTimeout          Optional[*time.Duration]
	ExecuteTimeout       Optional[time.Duration]
	MaxReadBytes         Optional[int64]
	WorkspaceTTL         Optional[*time.Duration]
	ContainerTTL         Optional[*time.Duration]
}
