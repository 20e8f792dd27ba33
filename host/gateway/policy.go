package gateway

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

// runtimePolicy is a runtime that clients may name. What a provider has no such
// thing as is null.
type runtimePolicy struct {
	Alias         string   `json:"alias"`
	Image         string   `json:"image" doc:"The runtime's own image, empty where it is its provider's"`
	Description   string   `json:"description"`
	Builds        bool     `json:"builds"`
	MemLimit      *string  `json:"mem_limit"`
	MemswapLimit  *string  `json:"memswap_limit"`
	CPUs          *float64 `json:"cpus"`
	CPUShares     *int     `json:"cpu_shares"`
	PidsLimit     *int     `json:"pids_limit"`
	NetworkMode   *string  `json:"network_mode"`
	OCIRuntime    *string  `json:"oci_runtime"`
	BerthProvider string   `json:"provider" doc:"The provider that it leads to"`
}

// servicePolicy is what bounds clients. Lifetimes are in seconds.
type servicePolicy struct {
	Runtimes             []runtimePolicy `json:"runtimes" nullable:"false"`
	DefaultRuntime       string          `json:"default_runtime" doc:"What a session gets that names none"`
	MaxSessions          *int            `json:"max_sessions"`
	MaxOpenSessions      *int            `json:"max_open_sessions"`
	MaxSessionsPerTenant *int            `json:"max_sessions_per_tenant"`
	EvictIdleAfter       *int            `json:"evict_idle_after"`
	MemLimit             *string         `json:"mem_limit"`
	MemswapLimit         *string         `json:"memswap_limit"`
	CPUs                 *float64        `json:"cpus"`
	CPUShares            *int            `json:"cpu_shares"`
	PidsLimit            *int            `json:"pids_limit"`
	NetworkMode          *string         `json:"network_mode"`
	OCIRuntime           *string         `json:"oci_runtime"`
	WorkDir              string          `json:"work_dir" doc:"Empty: each provider has its own"`
	IdleTimeout          int             `json:"idle_timeout" doc:"Zero is never"`
	ExecuteTimeout       int             `json:"execute_timeout"`
	MaxReadBytes         int64           `json:"max_read_bytes"`
	PersistContainers    bool            `json:"persist_containers"`
	SandboxUID           *int            `json:"sandbox_uid"`
	WorkspaceTTL         *int            `json:"workspace_ttl"`
	ContainerTTL         *int            `json:"container_ttl"`
	TmpfsSize            *string         `json:"tmpfs_size"`
	Prewarm              bool            `json:"prewarm"`
	Buildkit             bool            `json:"buildkit"`
	NativeFiles          bool            `json:"native_files"`
	NativeWrites         bool            `json:"native_writes"`
	NativeRealpath       bool            `json:"native_realpath"`
}

// policy is what is in force.
func (g *Gateway) policy(p session.Policy) servicePolicy {
	out := servicePolicy{
		DefaultRuntime: p.DefaultRuntime, MaxSessions: p.MaxSessions, MaxOpenSessions: p.MaxOpenSessions,
		MaxSessionsPerTenant: p.MaxSessionsPerTenant, EvictIdleAfter: seconds(p.EvictIdleAfter),
		IdleTimeout: deref(seconds(p.IdleTimeout)), ExecuteTimeout: deref(seconds(&p.ExecuteTimeout)), MaxReadBytes: p.MaxReadBytes,
		WorkspaceTTL: seconds(p.WorkspaceTTL), ContainerTTL: seconds(p.ContainerTTL),
		// A session that is closed keeps its workspace, and all files are native.
		PersistContainers: true, NativeFiles: true, NativeWrites: true, NativeRealpath: true,
	}
	for _, alias := range g.config.aliases() {
		runtime := g.config.Runtimes[alias]
		r := runtimePolicy{Alias: alias, Description: runtime.Description, BerthProvider: runtime.Provider}
		r.Image, _ = runtime.Config["image"].(string)
		r.MemLimit = setting[string](runtime, "mem_limit")
		r.NetworkMode = setting[string](runtime, "network_mode")
		out.Runtimes = append(out.Runtimes, r)
	}
	return out
}

// setting is a key that a runtime overrides, nil where it does not.
func setting[T any](runtime Runtime, key string) *T {
	if value, ok := runtime.Config[key].(T); ok {
		return &value
	}
	return nil
}

// seconds are whole ones: a part of one counts as one, so that none becomes zero.
func seconds(d *time.Duration) *int {
	if d == nil {
		return nil
	}
	n := int(math.Ceil(d.Seconds()))
	return &n
}

// maxCount is as many sessions as a ceiling may admit.
const maxCount = math.MaxInt32

// maxSeconds is as long as a lifetime may be: a hundred years, which a Duration
// holds.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// field is a key of an update. Null clears it, and one that is not there leaves it
// as it is.
type field[T any] struct {
	named bool
	value *T
}

// UnmarshalJSON reads a value that is there.
func (f *field[T]) UnmarshalJSON(data []byte) error {
	f.named = true
	return json.Unmarshal(data, &f.value)
}

// count is a number of sessions, lifetime whole seconds, and so on: fields with
// their schemas.
type (
	countField    struct{ field[int] }
	lifetimeField struct{ field[int] }
	positiveField struct{ field[int64] }
	nameField     struct{ field[string] }
)

// Schema is that of a number of sessions.
func (countField) Schema(huma.Registry) *huma.Schema {
	return bounded(0, maxCount, "Null is no ceiling, zero admits none")
}

// Schema is that of seconds.
func (lifetimeField) Schema(huma.Registry) *huma.Schema {
	return bounded(0, maxSeconds, "Seconds; null and zero are never")
}

// Schema is that of what cannot be none.
func (positiveField) Schema(huma.Registry) *huma.Schema {
	return bounded(1, maxSeconds, "Not to be cleared: null leaves it")
}

// Schema is that of an alias.
func (nameField) Schema(huma.Registry) *huma.Schema {
	limit := 64
	return &huma.Schema{Type: huma.TypeString, Nullable: true, MaxLength: &limit, Description: "An alias; null leaves it"}
}

func bounded(least, most float64, doc string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Nullable: true, Minimum: &least, Maximum: &most, Description: doc}
}

// policyUpdate is what an operator may change without a restart. Nothing in it
// decides what a workspace is or how it is isolated.
type policyUpdate struct {
	DefaultRuntime       nameField     `json:"default_runtime,omitempty"`
	MaxSessions          countField    `json:"max_sessions,omitempty"`
	MaxOpenSessions      countField    `json:"max_open_sessions,omitempty"`
	MaxSessionsPerTenant countField    `json:"max_sessions_per_tenant,omitempty"`
	EvictIdleAfter       lifetimeField `json:"evict_idle_after,omitempty"`
	IdleTimeout          lifetimeField `json:"idle_timeout,omitempty"`
	ExecuteTimeout       positiveField `json:"execute_timeout,omitempty"`
	MaxReadBytes         positiveField `json:"max_read_bytes,omitempty"`
	WorkspaceTTL         lifetimeField `json:"workspace_ttl,omitempty"`
	ContainerTTL         lifetimeField `json:"container_ttl,omitempty"`
}

func (u *policyUpdate) session() session.PolicyUpdate {
	var out session.PolicyUpdate
	count := func(f countField) session.Optional[*int] {
		return session.Optional[*int]{Named: f.named, Value: f.value}
	}
	life := func(f lifetimeField) session.Optional[*time.Duration] {
		return session.Optional[*time.Duration]{Named: f.named, Value: lifetime(time.Duration(deref(f.value)) * time.Second)}
	}
	if u.DefaultRuntime.value != nil {
		out.DefaultRuntime = session.To(*u.DefaultRuntime.value)
	}
	if u.ExecuteTimeout.value != nil {
		out.ExecuteTimeout = session.To(time.Duration(*u.ExecuteTimeout.value) * time.Second)
	}
	if u.MaxReadBytes.value != nil {
		out.MaxReadBytes = session.To(*u.MaxReadBytes.value)
	}
	out.MaxSessions = count(u.MaxSessions)
	out.MaxOpenSessions = count(u.MaxOpenSessions)
	out.MaxSessionsPerTenant = count(u.MaxSessionsPerTenant)
	out.EvictIdleAfter = life(u.EvictIdleAfter)
	out.IdleTimeout = life(u.IdleTimeout)
	out.WorkspaceTTL = life(u.WorkspaceTTL)
	out.ContainerTTL = life(u.ContainerTTL)
	return out
}

func registerPolicy(g *Gateway) {
	type answered struct{ Body servicePolicy }
	register(g, huma.Operation{
		OperationID: "get-policy", Method: http.MethodGet, Path: "/policy", Tags: []string{tagService},
		Summary: "Tell what bounds clients",
	}, byService, failures{}, func(context.Context, *struct{}) (*answered, error) {
		return &answered{g.policy(g.sessions.Policy())}, nil
	})

	register(g, huma.Operation{
		OperationID: "put-policy", Method: http.MethodPut, Path: "/policy", Tags: []string{tagService},
		Summary:     "Change ceilings and lifetimes",
		Description: "Keys that are left out stay as they are. The change holds for all gateways of the store, and after a restart.",
	}, byService, failures{text: []int{http.StatusBadRequest, http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct{ Body policyUpdate }) (*answered, error) {
		p, err := g.sessions.SetPolicy(ctx, in.Body.session())
		if err != nil {
			return nil, err
		}
		return &answered{g.policy(p)}, nil
	})
}
