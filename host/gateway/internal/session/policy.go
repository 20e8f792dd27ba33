package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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
	// WorkspaceTTL is when the workspace of a closed session is destroyed, with its
	// files, counted from its last activity; ContainerTTL the same, counted from its
	// closing.
	WorkspaceTTL, ContainerTTL *time.Duration
}

// Optional is a field of an update, which is changed only if Named.
type Optional[T any] struct {
	Named bool
	Value T
}

// To returns an update to a value.
func To[T any](value T) Optional[T] { return Optional[T]{Named: true, Value: value} }

// IsZero reports whether the field is left alone.
func (o Optional[T]) IsZero() bool { return !o.Named }

// MarshalJSON writes the value.
func (o Optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.Value) }

// UnmarshalJSON reads the value, null too, and names it.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	o.Named = true
	return json.Unmarshal(data, &o.Value)
}

func (o Optional[T]) apply(to *T) {
	if o.Named {
		*to = o.Value
	}
}

// and is o, or what a later update says.
func (o Optional[T]) and(later Optional[T]) Optional[T] {
	if later.Named {
		return later
	}
	return o
}

// PolicyUpdate changes the fields of a [Policy] that it names. Its JSON form, with
// times in nanoseconds, is what the store keeps.
type PolicyUpdate struct {
	DefaultRuntime       Optional[string]         `json:"default_runtime,omitzero"`
	MaxSessions          Optional[*int]           `json:"max_sessions,omitzero"`
	MaxOpenSessions      Optional[*int]           `json:"max_open_sessions,omitzero"`
	MaxSessionsPerTenant Optional[*int]           `json:"max_sessions_per_tenant,omitzero"`
	EvictIdleAfter       Optional[*time.Duration] `json:"evict_idle_after,omitzero"`
	IdleTimeout          Optional[*time.Duration] `json:"idle_timeout,omitzero"`
	ExecuteTimeout       Optional[time.Duration]  `json:"execute_timeout,omitzero"`
	MaxReadBytes         Optional[int64]          `json:"max_read_bytes,omitzero"`
	WorkspaceTTL         Optional[*time.Duration] `json:"workspace_ttl,omitzero"`
	ContainerTTL         Optional[*time.Duration] `json:"container_ttl,omitzero"`
}

// apply returns the policy with what the update names.
func (u PolicyUpdate) apply(p Policy) Policy {
	u.DefaultRuntime.apply(&p.DefaultRuntime)
	u.MaxSessions.apply(&p.MaxSessions)
	u.MaxOpenSessions.apply(&p.MaxOpenSessions)
	u.MaxSessionsPerTenant.apply(&p.MaxSessionsPerTenant)
	u.EvictIdleAfter.apply(&p.EvictIdleAfter)
	u.IdleTimeout.apply(&p.IdleTimeout)
	u.ExecuteTimeout.apply(&p.ExecuteTimeout)
	u.MaxReadBytes.apply(&p.MaxReadBytes)
	u.WorkspaceTTL.apply(&p.WorkspaceTTL)
	u.ContainerTTL.apply(&p.ContainerTTL)
	return p
}

// and returns both updates as one.
func (u PolicyUpdate) and(later PolicyUpdate) PolicyUpdate {
	return PolicyUpdate{
		DefaultRuntime:       u.DefaultRuntime.and(later.DefaultRuntime),
		MaxSessions:          u.MaxSessions.and(later.MaxSessions),
		MaxOpenSessions:      u.MaxOpenSessions.and(later.MaxOpenSessions),
		MaxSessionsPerTenant: u.MaxSessionsPerTenant.and(later.MaxSessionsPerTenant),
		EvictIdleAfter:       u.EvictIdleAfter.and(later.EvictIdleAfter),
		IdleTimeout:          u.IdleTimeout.and(later.IdleTimeout),
		ExecuteTimeout:       u.ExecuteTimeout.and(later.ExecuteTimeout),
		MaxReadBytes:         u.MaxReadBytes.and(later.MaxReadBytes),
		WorkspaceTTL:         u.WorkspaceTTL.and(later.WorkspaceTTL),
		ContainerTTL:         u.ContainerTTL.and(later.ContainerTTL),
	}
}

// validate checks a policy. The error is an Invalid, or UnknownRuntime, [Error].
func (p Policy) validate(runtimes map[string]Runtime) error {
	if _, ok := runtimes[p.DefaultRuntime]; !ok {
		return errUnknownRuntime(p.DefaultRuntime, runtimes)
	}
	for name, count := range map[string]*int{"max_sessions": p.MaxSessions, "max_open_sessions": p.MaxOpenSessions, "max_sessions_per_tenant": p.MaxSessionsPerTenant} {
		if count != nil && *count < 0 {
			return &Error{Kind: Invalid, Text: fmt.Sprintf("%s: %d is negative", name, *count)}
		}
	}
	for name, d := range map[string]*time.Duration{"evict_idle_after": p.EvictIdleAfter, "idle_timeout": p.IdleTimeout, "workspace_ttl": p.WorkspaceTTL, "container_ttl": p.ContainerTTL} {
		if d != nil && *d < 0 {
			return &Error{Kind: Invalid, Text: fmt.Sprintf("%s: %v is negative", name, *d)}
		}
	}
	if p.ExecuteTimeout <= 0 {
		return &Error{Kind: Invalid, Text: "execute_timeout: want more than zero"}
	}
	if p.MaxReadBytes <= 0 {
		return &Error{Kind: Invalid, Text: "max_read_bytes: want more than zero"}
	}
	return nil
}

func errUnknownRuntime(alias string, runtimes map[string]Runtime) *Error {
	return &Error{Kind: UnknownRuntime, Text: fmt.Sprintf("Unknown runtime %q. There are: %s", alias, strings.Join(slices.Sorted(maps.Keys(runtimes)), ", "))}
}

// policySetting is the name of the update in the store.
const policySetting = "policy"

// Policy returns what is in force. Another gateway's change is known here a few
// seconds later, and to an opening at once.
func (m *Manager) Policy() Policy { return *m.policy.Load() }

// loadPolicy reads what is in force now.
func (m *Manager) loadPolicy(ctx context.Context) (Policy, error) {
	value, err := m.st.Setting(ctx, policySetting)
	if err != nil {
		return m.Policy(), err
	}
	update, err := parseUpdate(value)
	if err != nil {
		return m.Policy(), err
	}
	return m.adopt(update), nil
}

// adopt puts the stored update into force.
func (m *Manager) adopt(update PolicyUpdate) Policy {
	p := m.over(update)
	m.policy.Store(&p)
	return p
}

// over is the stored update over this gateway's own configuration.
func (m *Manager) over(update PolicyUpdate) Policy {
	p := update.apply(m.config.Policy)
	if _, ok := m.runtimes[p.DefaultRuntime]; !ok { // another gateway's configuration has it
		p.DefaultRuntime = m.config.Policy.DefaultRuntime
	}
	return p
}

func parseUpdate(value string) (PolicyUpdate, error) {
	var u PolicyUpdate
	if value == "" {
		return u, nil
	}
	if err := json.Unmarshal([]byte(value), &u); err != nil {
		return PolicyUpdate{}, fmt.Errorf("read the policy in the store: %w", err)
	}
	return u, nil
}

// SetPolicy changes the policy, for all gateways of the store, until it is changed
// again. An error leaves it as it is.
func (m *Manager) SetPolicy(ctx context.Context, update PolicyUpdate) (Policy, error) {
	var all PolicyUpdate
	err := m.st.ChangeSetting(ctx, policySetting, func(old string) (string, error) {
		before, err := parseUpdate(old)
		if err != nil {
			return "", err
		}
		if err := update.apply(m.over(before)).validate(m.runtimes); err != nil {
			return "", err
		}
		all = before.and(update)
		value, err := json.Marshal(all)
		return string(value), err
	})
	if err != nil {
		return Policy{}, storeError(err)
	}
	return m.adopt(all), nil
}
