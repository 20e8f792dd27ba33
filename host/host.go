package host

import (
	"context"
	"iter"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/workspace"
)

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
	// DataDir is where plugins keep what they keep on this machine. Empty is the
	// user's data folder for Berth.
	DataDir string
	// Logger receives what plugins log and what happens to them. Nil is quiet.
	Logger hclog.Logger
	// Deadlines bound the calls to plugins. Zero fields are defaults.
	Deadlines Deadlines
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
}

// Host loads providers and opens workspaces. It satisfies [workspace.Host]. All
// methods may be called concurrently.
type Host struct{ config Config }

// New makes a host of a valid configuration. It starts nothing: whatever needs a
// plugin is found out by the first call, or by [Host.Check].
func New(config Config) (*Host, error) { return &Host{config: config}, nil }

var _ workspace.Host = (*Host)(nil)

func (h *Host) Workspace(provider string, opts ...workspace.Option) (workspace.Workspace, error) {
	panic("being written")
}
func (h *Host) Attach(ref workspace.Ref, opts ...workspace.Option) (workspace.Workspace, error) {
	panic("being written")
}
func (h *Host) Destroy(ctx context.Context, ref workspace.Ref) error { panic("being written") }
func (h *Host) List(ctx context.Context, provider string, opts workspace.ListOptions) iter.Seq2[workspace.Info, error] {
	panic("being written")
}

// Close is [Host.Shutdown] with 10 s for calls in flight.
func (h *Host) Close() error { panic("being written") }

// Shutdown takes no more calls, waits for those in flight until ctx ends, and
// then ends the plugins. Workspaces live on.
func (h *Host) Shutdown(ctx context.Context) error { panic("being written") }

// Check starts the provider's plugin, if it does not run, has it describe and
// configure itself, and tells its status, with the error if it did not start.
func (h *Host) Check(ctx context.Context, provider string) (ProviderStatus, error) {
	panic("being written")
}

// Schema returns the JSON Schema of the configuration of a plugin, by the
// plugin's name. It starts one for that and ends it.
func (h *Host) Schema(ctx context.Context, plugin string) ([]byte, error) { panic("being written") }

// LoadConfig reads a strict YAML file. An error is a [*ConfigError].
func LoadConfig(path string) (Config, error) { panic("being written") }

// DefaultConfig makes every plugin that is found a provider of its own name with
// default settings.
func DefaultConfig() (Config, error) { panic("being written") }

// ReadOnly wraps a workspace so that nothing is changed through it.
func ReadOnly(ws workspace.Workspace) workspace.Workspace { panic("being written") }

type source struct{}
