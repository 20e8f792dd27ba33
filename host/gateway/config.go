package gateway

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// Config says what a [Gateway] serves. [LoadConfig] reads one from a
// configuration file.
type Config struct {
	// Host opens the workspaces. A *host.Host can also stop those that are idle.
	Host workspace.Host
	// Token is the service's, which opens everything. It must be there.
	Token string
	// Runtimes are what clients may ask for, by alias.
	Runtimes map[string]Runtime
	// DefaultRuntime is the alias for a session that names none. Empty is the first
	// in the order of their names.
	DefaultRuntime string
	// Store is where the records of sessions are kept: "sqlite:PATH", a file for
	// this gateway alone, or "postgres://…", which several share.
	Store string
	// Listen is HOST:PORT, or "unix:PATH". Empty is 127.0.0.1:8787.
	Listen string
	// TLS has clients come by HTTPS. Nil is HTTP.
	TLS *TLS
	// Policy bounds what clients may do. They may change it, see PUT /policy.
	Policy Policy
	// DrainTimeout is how long Serve, told to end, waits for requests in flight
	// before it cuts them: 20 s if zero.
	DrainTimeout time.Duration
	// Logger is quiet if nil.
	Logger hclog.Logger
	// Metrics is served at /metrics, and gets the gateway's own. Nil is one with
	// these alone.
	Metrics *prometheus.Registry
	// TracerProvider gets a span of each request, below that which its client tells
	// of in traceparent. Nil is none.
	TracerProvider trace.TracerProvider
	// Version is told to clients.
	Version string
}

// TLS names the files of a certificate, with its chain, and of its key, in PEM. They
// are read again when they have changed.
type TLS struct{ Cert, Key string }

// Runtime is what an alias stands for.
type Runtime struct {
	// Provider is the configured provider's name. Empty is the alias itself.
	Provider string
	// Config overrides keys of the provider's configuration that its schema marks
	// per_workspace, env among them.
	Config map[string]any
	// Description is for people.
	Description string

	section host.Section // of Config, where that is from a file
}

// Policy holds ceilings and lifetimes.
type Policy struct {
	// MaxSessions bounds the sessions whose workspace runs, MaxOpenSessions those
	// that are open, hibernated ones too, and MaxSessionsPerTenant the open ones of
	// one tenant. Nil is no bound, zero admits none.
	MaxSessions, MaxOpenSessions, MaxSessionsPerTenant *int
	// ExecuteTimeout bounds every command: 5 min if zero.
	ExecuteTimeout time.Duration
	// MaxReadBytes bounds what one call reads or writes of a file, where it does
	// not stream it: 8 MiB if zero.
	MaxReadBytes int64
	// EvictIdleAfter is when a session without activity is hibernated: its
	// workspace is stopped, and starts with the next call. 30 min if zero, never if
	// negative.
	EvictIdleAfter time.Duration
	// IdleTimeout is when a session without activity is closed, as by a DELETE.
	// Its files are kept. Never if zero or negative.
	IdleTimeout time.Duration
	// WorkspaceTTL is when the workspace of a closed session is destroyed, counted
	// from its last activity; ContainerTTL the same, counted from its closing.
	// Never if zero or negative.
	WorkspaceTTL, ContainerTTL time.Duration
}

// Defaults.
const (
	// DefaultListen is what the gateway listens at where nothing is said.
	DefaultListen = "127.0.0.1:8787"

	defaultExecuteTimeout = 5 * time.Minute
	defaultMaxReadBytes   = 8 << 20
	// defaultEvictIdleAfter is longer than a person thinks between two questions to
	// an agent, and short enough that forgotten sessions do not fill a machine.
	defaultEvictIdleAfter = 30 * time.Minute
	// defaultDrainTimeout leaves some of the 30 s that service managers grant.
	defaultDrainTimeout = 20 * time.Second
)

// aliasName is what an alias looks like: the grammar of a session's id.
var aliasName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const aliasFault = "is not named as an alias can be: want 1 to 64 of A-Z, a-z, 0-9, ., _ and -, the first a letter or digit"

// complete fills in defaults, and checks what is there.
func (c *Config) complete() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("gateway: "+format+": %w", append(args, workspace.ErrInvalid)...)
	}
	if c.Host == nil {
		return invalid("no host")
	}
	if fault := tokenFault(c.Token); fault != "" {
		return invalid("the token %s", fault)
	}
	if fault := storeFault(c.Store); fault != "" {
		return invalid("the store: %s", fault)
	}
	if len(c.Runtimes) == 0 {
		return invalid("no runtimes: clients could open nothing")
	}
	c.Runtimes = maps.Clone(c.Runtimes)
	for alias, runtime := range c.Runtimes {
		if !aliasName.MatchString(alias) {
			return invalid("the runtime %q %s", alias, aliasFault)
		}
		if runtime.Provider == "" {
			runtime.Provider = alias
			c.Runtimes[alias] = runtime
		}
	}
	if c.DefaultRuntime == "" {
		c.DefaultRuntime = c.aliases()[0]
	}
	if _, ok := c.Runtimes[c.DefaultRuntime]; !ok {
		return invalid("the default runtime %q is none of %s", c.DefaultRuntime, strings.Join(c.aliases(), ", "))
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if fault := listenFault(c.Listen); fault != "" {
		return invalid("listen %q: %s", c.Listen, fault)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrainTimeout
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c.Policy.complete()
}

func (p *Policy) complete() error {
	if p.ExecuteTimeout < 0 || p.MaxReadBytes < 0 {
		return fmt.Errorf("gateway: a policy's ExecuteTimeout and MaxReadBytes are not negative: %w", workspace.ErrInvalid)
	}
	for _, ceiling := range []*int{p.MaxSessions, p.MaxOpenSessions, p.MaxSessionsPerTenant} {
		if ceiling != nil && *ceiling < 0 {
			return fmt.Errorf("gateway: a policy's number of sessions is not negative: %w", workspace.ErrInvalid)
		}
	}
	if p.ExecuteTimeout == 0 {
		p.ExecuteTimeout = defaultExecuteTimeout
	}
	if p.MaxReadBytes == 0 {
		p.MaxReadBytes = defaultMaxReadBytes
	}
	if p.EvictIdleAfter == 0 {
		p.EvictIdleAfter = defaultEvictIdleAfter
	}
	return nil
}

// tokenFault says what is wrong with a token, if anything is: it travels in a
// header.
func tokenFault(token string) string {
	if token == "" {
		return "is empty"
	}
	for _, b := range []byte(token) {
		if b <= ' ' || b > '~' {
			return "holds what no header can: want printable ASCII without spaces"
		}
	}
	return ""
}

// listenFault says what is wrong with an address to listen at, if anything is.
func listenFault(text string) string {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return ""
	}
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return "want HOST:PORT, or unix:PATH"
	}
	return ""
}

// storeFault says what is wrong with a store, if anything is.
func storeFault(text string) string {
	for _, scheme := range []string{"sqlite:", "postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(text, scheme); ok && rest != "" {
			return ""
		}
	}
	return "want sqlite:PATH, or postgres://…"
}

func (c *Config) aliases() []string { return slices.Sorted(maps.Keys(c.Runtimes)) }

// session is the configuration of the sessions' manager.
func (c *Config) session(st *store.Store) session.Config {
	config := session.Config{
		Host: c.Host, Store: st, Token: c.Token, Logger: c.Logger,
		Policy: session.Policy{
			DefaultRuntime:       c.DefaultRuntime,
			MaxSessions:          c.Policy.MaxSessions,
			MaxOpenSessions:      c.Policy.MaxOpenSessions,
			MaxSessionsPerTenant: c.Policy.MaxSessionsPerTenant,
			EvictIdleAfter:       lifetime(c.Policy.EvictIdleAfter),
			IdleTimeout:          lifetime(c.Policy.IdleTimeout),
			ExecuteTimeout:       c.Policy.ExecuteTimeout,
			MaxReadBytes:         c.Policy.MaxReadBytes,
			WorkspaceTTL:         lifetime(c.Policy.WorkspaceTTL),
			ContainerTTL:         lifetime(c.Policy.ContainerTTL),
		},
	}
	for _, alias := range c.aliases() {
		runtime := c.Runtimes[alias]
		config.Runtimes = append(config.Runtimes, session.Runtime{
			Alias: alias, Provider: runtime.Provider, Config: runtime.Config, Description: runtime.Description,
		})
	}
	return config
}

// lifetime is nil for never.
func lifetime(d time.Duration) *time.Duration {
	if d <= 0 {
		return nil
	}
	return &d
}

// storeURL is what the store calls what the configuration calls store.
func storeURL(text string) string {
	if path, ok := strings.CutPrefix(text, "sqlite:"); ok {
		return "file:" + path
	}
	return text
}
