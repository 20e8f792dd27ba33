package host

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/secret"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// provider is one configured provider: the supervisor of its plugin, and what
// is known of the plugin that was configured last.
type provider struct {
	host   *Host
	name   string
	plugin string
	config Provider
	super  *supervisor.Supervisor

	events *events.Ring
	log    *providerLog
	logger hclog.Logger // leads to log

	telling sync.Mutex // one plugin at a time is told its level

	mu      sync.Mutex
	secret  map[string]bool   // the values that were found to be, by any schema
	secrets *strings.Replacer // of these; nil before a schema is known
	// toldLevel is the one that went with the last configuration.
	toldLevel hclog.Level
	served    []func() // end what is served in this process
}

func newProvider(h *Host, name string, config Provider) (*provider, error) {
	if err := workspace.ValidateName(name); err != nil {
		return nil, config.fault("providers", fmt.Sprintf("provider %v", err))
	}
	p := &provider{host: h, name: name, plugin: config.Plugin, config: config, events: events.New(), secret: make(map[string]bool)}
	p.log, p.logger = newProviderLog(h.logger, name)
	if p.plugin == "" {
		p.plugin = name
	}
	if err := workspace.ValidateName(p.plugin); err != nil {
		return nil, config.fault("providers."+name+".plugin", err.Error())
	}
	if config.StartTimeout < 0 {
		return nil, config.fault("providers."+name+".start_timeout", "must not be negative")
	}
	if config.DrainLimit < 0 {
		return nil, config.fault("providers."+name+".drain_limit", "must not be negative")
	}
	if config.IdleTimeout < 0 {
		return nil, config.fault("providers."+name+".idle_timeout", "must not be negative")
	}
	if err := config.checkBudget("providers." + name + ".budget"); err != nil {
		return nil, err
	}
	env, err := execEnvironment(config.InheritEnv)
	if err != nil {
		return nil, config.fault("providers."+name+".inherit_env", err.Error())
	}
	sc := supervisor.Config{
		Provider:     name,
		Find:         p.find,
		Configure:    p.configure,
		Dir:          h.dir,
		Env:          env,
		StartTimeout: config.StartTimeout,
		Logger:       p.logger,
		Redact:       p.redact,
		HostVersion:  hostVersion(),

		TracerProvider: h.observer.tracers(),
		Starting:       p.starting,
		Started:        p.started,

		Events: p.events,

		Limits:        config.Budget.limits(),
		Restarts:      config.Budget.restarts(),
		RestartWindow: config.Budget.RestartWindow,

		LivenessInterval: h.deadlines.Liveness,
		DrainLimit:       config.DrainLimit,
		IdleTimeout:      config.IdleTimeout,
	}
	if r := config.InProcess; r != nil {
		sc.Find, sc.InProcess = nil, func(s grpc.ServiceRegistrar) {
			p.stopServed()
			r.Register(&registrar{ServiceRegistrar: s, p: p})
		}
	}
	p.super = supervisor.New(sc)
	return p, nil
}

// find looks the plugin's binary up.
func (p *provider) find() (catalog.Binary, error) { return p.host.pins.find(p.plugin) }

// configure is asked at each start of the plugin: a newer binary may have
// another schema.
func (p *provider) configure(_ context.Context, bin catalog.Binary, d *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error) {
	s, err := compileSchema(d.GetConfigSchema())
	if err != nil {
		return nil, &workspace.PluginError{Provider: p.name, Op: "configure", Reason: err.Error()}
	}
	config, err := s.configuration(p.config.Config, p.host.dir)
	if err != nil {
		return nil, p.config.explain("providers."+p.name+".config", err)
	}
	vars := map[string]string{}
	if p.conventional(bin) {
		vars = conventionalEnvironment(d.GetEnvironment())
	}
	p.keepSecret(s.secrets(p.config.Config))
	level := p.log.wanted()
	p.mu.Lock()
	p.toldLevel = level
	p.mu.Unlock()
	return &berthv1.ConfigureRequest{
		Provider:    p.name,
		Config:      config,
		LogLevel:    level.String(),
		Environment: envVars(vars),
		DataDir:     []byte(filepath.Join(p.host.dataDir, "providers", p.name)),
	}, nil
}

// registrar tells a provider that is served in this process where to leave what
// its process's end would do: sdk.Plugin asks for OnStop.
type registrar struct {
	grpc.ServiceRegistrar
	p *provider
}

// OnStop is what sdk.Plugin looks for.
func (r *registrar) OnStop(stop func()) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.served = append(r.p.served, stop)
}

// stopServed ends what was served in this process before; its server has ended.
func (p *provider) stopServed() {
	p.mu.Lock()
	served := p.served
	p.served = nil
	p.mu.Unlock()
	for _, stop := range served {
		stop()
	}
}

// shutdown drains and ends the plugin.
func (p *provider) shutdown(ctx context.Context) error {
	err := p.super.Shutdown(ctx)
	p.stopServed()
	if err != nil {
		return fmt.Errorf("provider %s: shutting down: %w", p.name, err)
	}
	return nil
}

// keepSecret adds to what is redacted. What an older plugin's schema calls a secret
// stays one: that plugin may be leaving, or a newer one be refused.
func (p *provider) keepSecret(values []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, value := range values {
		p.secret[value] = true
	}
	p.secrets = secret.Replacer(sortedKeys(p.secret))
}

// redact keeps the configuration's secrets out of logs and errors, whatever the
// plugin writes there (contract B7).
func (p *provider) redact(text string) string {
	p.mu.Lock()
	r := p.secrets
	p.mu.Unlock()
	if r == nil {
		return text
	}
	return r.Replace(text)
}

// conventional reports whether the plugin gets the variables that it reads by
// convention: one that was installed with this program is trusted with them.
func (p *provider) conventional(bin catalog.Binary) bool {
	if p.config.ConventionalEnv != nil {
		return *p.config.ConventionalEnv
	}
	own, folder := executableDir(), filepath.Dir(bin.Path)
	if resolved, err := filepath.EvalSymlinks(folder); err == nil {
		folder = resolved
	}
	return own != "" && bin.Path != "" && folder == own
}

// acquire starts the plugin if need be. The instance is released once.
func (p *provider) acquire(ctx context.Context) (*supervisor.Instance, error) {
	p.host.mu.Lock()
	closed := p.host.closed
	p.host.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	return p.super.Acquire(ctx)
}
