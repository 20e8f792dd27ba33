package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/workspace"
)

// closeDrain is how long [Host.Close] waits for calls in flight: longer than any
// small call takes, shorter than what a terminating program is given.
const closeDrain = 10 * time.Second

// Registrar serves a provider in this process instead of a plugin binary.
// sdk.Plugin is one. Each call registers a fresh server.
type Registrar interface {
	Register(grpc.ServiceRegistrar)
}

// Config says which providers a [Host] has. The zero value of every field but
// Providers is a working default. [LoadConfig] reads one from a file.
type Config struct {
	// Providers are the configured ones by their names, which refs carry.
	Providers map[string]Provider
	// PluginDirs are searched for plugin binaries first, in order; then
	// $BERTH_PLUGIN_PATH, the folder of this program, the user's data folder
	// berth/plugins, and /usr/lib/berth/plugins.
	PluginDirs []string
	// Dir is where relative paths in the configuration begin, and the plugins'
	// working directory. Empty is the current directory.
	Dir string
	// Lock says which bytes of each plugin may run, by their digests. Nil is whatever
	// is found. [LoadConfig] sets it to the file berth.lock beside the configuration.
	Lock *Lock
	// AllowWritablePlugins runs plugins that other users may change, or whose folder
	// they may: see docs/operating.md. Others are refused.
	AllowWritablePlugins bool
	// CacheDir is where verified copies of locked plugins are kept. Empty is the
	// folder berth of the user's cache folder.
	CacheDir string
	// DataDir is where plugins keep what they keep on this machine. Empty is the
	// user's data folder for Berth.
	DataDir string
	// Logger receives what plugins log and what happens to them. Nil is quiet.
	Logger hclog.Logger
	// TracerProvider gets a span of each operation, whose calls to plugins are its
	// children: docs/observability.md. Nil is none, and costs nothing.
	TracerProvider trace.TracerProvider
	// MeterProvider gets figures of what is done and of the plugins. Nil is none.
	MeterProvider metric.MeterProvider
	// Deadlines bound the calls to plugins. Zero fields are defaults.
	Deadlines Deadlines
	// WatchPlugins swaps a plugin that runs, as [Host.Reload] does, when its binary
	// changes: a file renamed into place, a link that leads elsewhere, or one that
	// appears in an earlier folder. One that does not come up is tried again, after
	// longer and longer pauses.
	WatchPlugins bool

	watchSaid bool               // the file says whether to watch
	sections  map[string]Section // what LoadConfig left to others
}

// DataFolder is DataDir, or the user's data folder for Berth if that is empty.
func (c Config) DataFolder() string {
	if c.DataDir != "" {
		return c.DataDir
	}
	return userDataDir()
}

// WatchPluginsOr is WatchPlugins, or unsaid if this is of a file that does not say.
func (c Config) WatchPluginsOr(unsaid bool) bool {
	if c.WatchPlugins || c.watchSaid {
		return c.WatchPlugins
	}
	return unsaid
}

// Provider is a configured instance of a plugin.
type Provider struct {
	// Plugin is NAME of the binary berth-provider-NAME. Empty is the provider's
	// own name.
	Plugin string
	// Config is the provider's configuration, as its plugin's schema allows.
	// It is validated before the plugin sees it.
	Config map[string]any
	// InheritEnv names variables of this process that the plugin gets besides
	// PATH, HOME, TMPDIR, locale, proxy and CA variables.
	InheritEnv []string
	// ConventionalEnv sends the plugin the variables that it reads by
	// convention, such as DOCKER_HOST. Nil is true for a plugin that was found
	// beside this program, false for others.
	ConventionalEnv *bool
	// StartTimeout bounds a start of the plugin. Zero is a default.
	StartTimeout time.Duration
	// DrainLimit is how long a plugin that was swapped out ([Host.Reload]) may
	// finish what it has; then it is ended, and the calls that it still has fail
	// with a [*workspace.PluginError]. Zero is 10 min.
	DrainLimit time.Duration
	// IdleTimeout is after what time without calls the plugin is stopped; the next
	// call starts it. Zero is never.
	IdleTimeout time.Duration
	// Budget bounds the plugin's own process, and how often it may die.
	Budget Budget
	// InProcess serves the provider in this process, for tests.
	InProcess Registrar

	source *source // where LoadConfig read it
}

// Deadlines bound the calls to plugins (not commands, which have their own
// timeout). One that passes is a [*workspace.PluginError] that may have been
// carried out. Zero fields are the defaults.
type Deadlines struct {
	// Read is for a call that changes nothing: 60 s.
	Read time.Duration
	// Change is for a call that changes something: 5 min.
	Change time.Duration
	// Open is for creating or attaching a workspace: 15 min.
	Open time.Duration
	// Idle is for a stream of a file or a listing on which the plugin makes no
	// progress: 60 s. Waiting for our own caller does not count.
	Idle time.Duration
	// Liveness is between two health checks of a plugin, and how long one may
	// take: 5 s. One that misses three is ended, and its calls fail.
	Liveness time.Duration
}

// The default deadlines: each is far above what the slowest service that we
// know of takes, since a plugin that hangs is found out sooner by its liveness.
const (
	defaultRead   = 60 * time.Second
	defaultChange = 5 * time.Minute
	defaultOpen   = 15 * time.Minute
	defaultIdle   = 60 * time.Second
	// defaultLiveness is short, since it is what ends a plugin that hangs.
	defaultLiveness = supervisor.DefaultLivenessInterval
)

func (d Deadlines) withDefaults() (Deadlines, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Read", &d.Read, defaultRead},
		{"Change", &d.Change, defaultChange},
		{"Open", &d.Open, defaultOpen},
		{"Idle", &d.Idle, defaultIdle},
		{"Liveness", &d.Liveness, defaultLiveness},
	} {
		switch {
		case *f.value == 0:
			*f.value = f.def
		case *f.value < 0:
			return d, fmt.Errorf("host: Deadlines.%s %v is negative: %w", f.name, *f.value, workspace.ErrInvalid)
		}
	}
	return d, nil
}

// Host loads providers and opens workspaces. It satisfies [workspace.Host]. All
// methods may be called concurrently.
type Host struct {
	dir       string
	dataDir   string
	pins      *pins
	logger    hclog.Logger
	deadlines Deadlines
	providers map[string]*provider
	observer  *observer // nil if nobody observes

	// ctx ends when the plugins have: what still waits for one leaves.
	ctx    context.Context //nolint:containedctx // the life of the host itself
	cancel context.CancelFunc

	// closing is closed when a Shutdown begins.
	closing chan struct{}

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup // creates and runs; see begin
}

var _ workspace.Host = (*Host)(nil)

// New makes a host of a valid configuration. It starts nothing: whatever needs a
// plugin is found out by the first call, or by [Host.Check].
func New(config Config) (*Host, error) {
	deadlines, err := config.Deadlines.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{logger: config.Logger, deadlines: deadlines, providers: make(map[string]*provider, len(config.Providers)), closing: make(chan struct{})}
	if h.logger == nil {
		h.logger = hclog.NewNullLogger()
	}
	if h.dir, err = filepath.Abs(config.Dir); err != nil {
		return nil, fmt.Errorf("host: finding the current directory: %w", err)
	}
	h.dataDir = resolvePath(h.dir, config.DataFolder())
	var pluginDirs []string
	for _, dir := range config.PluginDirs {
		pluginDirs = append(pluginDirs, resolvePath(h.dir, dir))
	}
	pluginDirs = append(pluginDirs, defaultPluginDirs()...)
	cacheDir := config.CacheDir
	if cacheDir != "" {
		cacheDir = resolvePath(h.dir, cacheDir)
	}
	h.pins = newPins(config.Lock, pluginDirs, config.AllowWritablePlugins, cacheDir)
	if h.observer, err = newObserver(config); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for name, p := range config.Providers {
		if h.providers[name], err = newProvider(h, name, p); err != nil {
			h.cancel()
			return nil, err
		}
	}
	if err := h.observer.follow(h.providers); err != nil {
		h.cancel()
		return nil, err
	}
	if config.WatchPlugins {
		h.watchPlugins()
	}
	return h, nil
}

// Workspace makes a handle that creates on its first operation. No I/O.
func (h *Host) Workspace(provider string, opts ...workspace.Option) (workspace.Workspace, error) {
	p, err := h.provider(provider)
	if err != nil {
		return nil, err
	}
	return observe(newHandle(p, opts))
}

// Attach makes a handle to an existing workspace, which never creates one. Of
// the options only WithConfig, with nothing but env, and WithProgress have a
// meaning. No I/O.
func (h *Host) Attach(ref workspace.Ref, opts ...workspace.Option) (workspace.Workspace, error) {
	p, err := h.providerOf(ref)
	if err != nil {
		return nil, err
	}
	return observe(newAttached(p, ref, opts))
}

// Destroy ends a workspace; already gone is success (contract L6).
func (h *Host) Destroy(ctx context.Context, ref workspace.Ref) error {
	p, err := h.providerOf(ref)
	if err != nil {
		return err
	}
	ctx, ob := p.observe(ctx, opDestroy, attrWorkspace.String(ref.String()))
	err = p.destroy(ctx, ref)
	ob.end(err)
	return err
}

// List tells what a provider made, in no particular order. It ends at the first
// error.
func (h *Host) List(ctx context.Context, provider string, opts workspace.ListOptions) iter.Seq2[workspace.Info, error] {
	p, err := h.provider(provider)
	if err == nil {
		err = validateListOptions(opts)
	}
	if err != nil {
		return func(yield func(workspace.Info, error) bool) { yield(workspace.Info{}, err) }
	}
	return func(yield func(workspace.Info, error) bool) {
		ctx, ob := p.observe(ctx, opList)
		ob.end(each(p.list(ctx, opts), yield))
	}
}

// Sweep removes what a provider keeps beside its workspaces and nothing uses any
// more, such as images that it built, and tells what that was. A provider that
// keeps nothing says [errors.ErrUnsupported].
func (h *Host) Sweep(ctx context.Context, provider string, opts workspace.SweepOptions) ([]workspace.Leftover, error) {
	p, err := h.provider(provider)
	if err == nil && opts.OlderThan < 0 {
		err = fmt.Errorf("sweep: OlderThan %v is negative: %w", opts.OlderThan, workspace.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	ctx, ob := p.observe(ctx, opSweep)
	leftovers, err := p.sweep(ctx, opts)
	ob.end(err)
	return leftovers, err
}

// Close is [Host.Shutdown] with 10 s for calls in flight.
func (h *Host) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeDrain)
	defer cancel()
	return h.Shutdown(ctx)
}

// Shutdown takes no more calls, waits for those in flight until ctx ends, and
// then ends the plugins; calls that were still in flight fail. Workspaces live
// on (contract L6). Detached commands go on, as do runs that were attached: what
// follows them here ends at once. A second Shutdown waits as the first one does.
func (h *Host) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()

	errs := make([]error, len(h.providers))
	var wg sync.WaitGroup
	for i, name := range slices.Sorted(maps.Keys(h.providers)) {
		wg.Go(func() { errs[i] = h.providers[name].shutdown(ctx) })
	}
	wg.Wait()
	h.cancel()
	h.tasks.Wait()
	h.observer.close()
	return errors.Join(errs...)
}

// begin announces a goroutine that Shutdown waits for; the caller ends it with
// h.tasks.Done.
func (h *Host) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	h.tasks.Add(1)
	return nil
}

// errClosed is what every call on a closed host fails with.
var errClosed = fmt.Errorf("the host is closed: %w", fs.ErrClosed)

func (h *Host) provider(name string) (*provider, error) {
	if p := h.providers[name]; p != nil {
		return p, nil
	}
	known := "none is"
	if len(h.providers) > 0 {
		known = strings.Join(slices.Sorted(maps.Keys(h.providers)), ", ")
	}
	return nil, fmt.Errorf("unknown provider %q: configured: %s: %w", shorten(name), known, workspace.ErrInvalid)
}

func (h *Host) providerOf(ref workspace.Ref) (*provider, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	p, err := h.provider(ref.Provider)
	if err != nil {
		return nil, fmt.Errorf("ref %s: %w", ref, err)
	}
	return p, nil
}

// shorten keeps a caller's text from filling a message.
func shorten(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// resolvePath makes a path of a configuration absolute: ~ is the user's home,
// anything relative begins at dir.
func resolvePath(dir, path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, path[1:])
		}
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
