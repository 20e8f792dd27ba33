// Package process runs one plugin process: it starts a binary under go-plugin's
// handshake, connects to it, carries its log, and ends it whatever state it is
// in. [Start] returns a [Process]; [Process.Stop] or [Process.Close] ends it.
//
// Nothing that a plugin does is trusted. go-plugin gives the handshake and the
// graceful end; all that could block or crash the host with a faulty plugin, its
// log parser and its own runner, is replaced here.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/shared/wire"
)

const (
	// DefaultStartTimeout is how long a plugin may take from its start to its
	// handshake and connection. Loaded machines and first starts from a cold
	// disk take seconds; a plugin that takes longer than this never comes.
	DefaultStartTimeout = 30 * time.Second
	// stopGrace is how long a plugin that was asked to end may take to. It is
	// go-plugin's own.
	stopGrace = 2 * time.Second
	// killWait is how long a process may take to end after SIGKILL. One that
	// takes longer sits in the kernel, and nothing can be done about it.
	killWait = 2 * time.Second
	// outputWait is how long an error waits for the last output of a process
	// that has ended. It is in the pipe already and only has to be read.
	outputWait = time.Second
	// ownEndWait is how long a process that closed its stdout or its socket is
	// given to end by itself, so that the error tells its own exit status.
	ownEndWait = time.Second
	// DefaultSlowStart is when people begin to wonder what a start waits for.
	DefaultSlowStart = 5 * time.Second
)

// Config says what to start.
type Config struct {
	// Provider is the configured provider's name, for errors.
	Provider string
	// Path is the plugin binary's absolute path.
	Path string
	// Open returns the file that is executed in Path's place, just before it is, and
	// is asked again for each process; release is called when that has ended. Nil
	// executes Path.
	Open func() (path string, release func(), err error)
	// Dir is the working directory.
	Dir string
	// Env is the complete environment, but for what the handshake adds. Nothing
	// of this process's own is inherited.
	Env []string
	// StartTimeout is how long the start may take; zero is
	// [DefaultStartTimeout].
	StartTimeout time.Duration
	// Logger gets what the plugin logs and prints. Nil discards it.
	Logger hclog.Logger
	// SlowStart is after what time a start is logged with what it waits for; zero
	// is [DefaultSlowStart].
	SlowStart time.Duration
	// Limits bound what the process may use of the machine. The zero value is no
	// bound.
	Limits budget.Limits
	// Redact is applied to whatever the plugin writes before it is logged or
	// put into an error. Nil changes nothing.
	Redact func(string) string
	// TracerProvider gets a span of each call. Nil is none.
	TracerProvider trace.TracerProvider
}

// Process is a running plugin process, or one that has ended.
type Process struct {
	path     string
	provider string
	pump     *pump
	client   *plugin.Client
	conns    *conns
	conn     *grpc.ClientConn
	version  int
	// attempted says that our runner was asked to start the process.
	attempted bool

	folder   *folder
	greeted  chan struct{} // closed when helloErr is set: the first line was read
	helloErr error         // why that was no handshake
	addr     atomic.Pointer[address]
	handoff  *handoff       // the handshake line, for go-plugin
	readers  sync.WaitGroup // of stdout and stderr
	chores   sync.WaitGroup // what Close waits for beside the process
	exited   chan struct{}  // closed when the process is dead and reaped
	finished chan struct{}  // closed when its output is read and its traces are gone
	killOnce sync.Once
	killed   chan struct{} // closed when go-plugin's Kill has returned

	mu       sync.Mutex // guards what follows, and that no signal meets a reused pid
	proc     *os.Process
	pid      int // zero if none was started
	reaped   bool
	state    *os.ProcessState
	reason   string // why the host killed it
	oom      string // why the kernel did, for want of memory
	bounds   string // what bounds it
	spawn    error  // why there is no process
	executed string // the file that was executed, which need not be that at path
}

// Conn is the connection to the plugin's server. After the process has ended
// its calls fail with code Unavailable, until Close.
func (p *Process) Conn() grpc.ClientConnInterface { return p.conn }

// PID is the process's id, also after its end.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Version is the protocol version that plugin and host agreed on.
func (p *Process) Version() int { return p.version }

// Exited is closed as soon as the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Finished is closed when, after the end, the last output has been read and the
// socket folder is gone.
func (p *Process) Finished() <-chan struct{} { return p.finished }

// ExitStatus tells how the process ended, such as "exit status 7" or "signal:
// killed". It is empty while it runs.
func (p *Process) ExitStatus() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		return ""
	}
	return p.state.String()
}

// Reason tells why the host killed the process, or is empty.
func (p *Process) Reason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// Stderr returns the last lines that the plugin wrote there.
func (p *Process) Stderr() []string { return p.pump.last() }

// Dropped counts the log records that a slow logger did not take.
func (p *Process) Dropped() uint64 { return p.pump.dropped.Load() }

// Start starts a plugin and connects to it. A failure is an error for which
// errors.As finds a [*workspace.PluginError], or wraps ctx's error if that ended
// the start; then no process is left.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = DefaultStartTimeout
	}
	if cfg.SlowStart == 0 {
		cfg.SlowStart = DefaultSlowStart
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	folder, err := newFolder()
	if err != nil {
		return nil, startError(cfg.Provider, err.Error(), err)
	}
	p := newProcess(cfg, folder)
	spawnCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.client = plugin.NewClient(p.clientConfig(spawnCtx, cfg))

	connected := make(chan error, 1)
	p.chores.Go(func() { connected <- p.connect(spawnCtx) })
	err = p.awaitStart(ctx, cfg, connected)
	if err != nil {
		waited := p.waitingFor() // before the kill, which closes its stdout
		cancel()
		if !errors.Is(err, errStartTimeout) {
			p.awaitOwnEnd(ctx)
		}
		p.Kill("its start was given up")
		err = p.failedStart(ctx, cfg, waited, err)
		_ = p.Close() // the error of the start says more
		return nil, err
	}
	p.chores.Go(sweep) // now that nobody waits for it
	return p, nil
}

func newProcess(cfg Config, folder *folder) *Process {
	return &Process{
		path:     cfg.Path,
		provider: cfg.Provider,
		pump:     newPump(cfg.Logger, cfg.Redact),
		conns:    &conns{},
		folder:   folder,
		greeted:  make(chan struct{}),
		handoff:  newHandoff(),
		exited:   make(chan struct{}),
		finished: make(chan struct{}),
		killed:   make(chan struct{}),
	}
}

// connect makes go-plugin start the process, by our runner, and dial it.
func (p *Process) connect(ctx context.Context) (err error) {
	defer func() { // a plugin has crashed hosts through go-plugin before
		if r := recover(); r != nil {
			err = fmt.Errorf("go-plugin: panic: %v", r)
		}
	}()
	if _, err := p.client.Start(); err != nil {
		if !p.attempted { // go-plugin gave up before it came to our runner
			return p.notSpawned(err)
		}
		return err
	}
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	p.conn = protocol.(*plugin.GRPCClient).Conn // readHello accepts gRPC alone
	p.version = p.client.NegotiatedVersion()
	// go-plugin takes a socket on which no gRPC is spoken for a plugin without
	// stdio. Any answer will do.
	health := grpc_health_v1.NewHealthClient(p.conn)
	_, err = health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", errNoServer, status.Convert(err).Message())
	}
	return nil
}

func (p *Process) awaitStart(ctx context.Context, cfg Config, connected <-chan error) error {
	timeout := time.NewTimer(cfg.StartTimeout)
	defer timeout.Stop()
	slow := time.NewTimer(cfg.SlowStart)
	defer slow.Stop()
	for {
		select {
		case err := <-connected:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return errStartTimeout
		case <-slow.C:
			p.pump.put(record{ // which never blocks, as the logger could
				level: hclog.Warn, message: "plugin is slow to start",
				args: []any{"path", cfg.Path, "pid", p.PID(), "waiting_for", p.waitingFor()},
			})
		}
	}
}

// clientConfig is what go-plugin is given. There is no AutoMTLS: its P-521 keys
// cost 30 ms a start, while a socket in a folder of mode 0700, with the peer's
// uid checked, keeps the same others out.
func (p *Process) clientConfig(ctx context.Context, cfg Config) *plugin.ClientConfig {
	return &plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc:       p.runnerFunc(ctx, cfg),
		// Later than ours, whose error says more.
		StartTimeout: cfg.StartTimeout + killWait,
		// Its parser of a plugin's stderr panics on some lines; ours reads it.
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		SkipHostEnv:      true,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.folder.path},
		SyncStdout:       p.pump.stdout(),
		SyncStderr:       p.pump.stderr(),
		GRPCDialOptions:  p.dialOptions(cfg),
	}
}

// speaks are the protocol versions of this host.
func speaks() []int { return []int{wire.ProtocolV1} }
