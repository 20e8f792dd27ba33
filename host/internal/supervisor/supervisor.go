// Package supervisor keeps the plugin of one provider running: it is started
// once, whoever asks, described and configured at each start, watched, started
// again after it died, swapped for a newer one, and drained in the end. [New]
// starts nothing; [Supervisor.Acquire] does, and [Supervisor.Reload].
package supervisor

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// Config says which plugin to run, and how.
type Config struct {
	// Provider is the configured provider's name.
	Provider string
	// Find looks the binary up, at each start.
	Find func() (catalog.Binary, error)
	// InProcess, instead of Find, registers the provider on a server in this
	// process, which is reached over a pipe. It is called at each start.
	InProcess func(grpc.ServiceRegistrar)
	// Configure makes the configuration after Describe, at each start. Its error
	// fails the start and is returned as it is to all who wait. Without it, or
	// with a nil request, the plugin is described and not configured.
	Configure func(ctx context.Context, bin catalog.Binary, d *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error)
	// Dir is the plugin's working directory, Env its complete environment.
	Dir string
	Env []string
	// StartTimeout bounds a start up to its configuration. Zero is
	// process.DefaultStartTimeout.
	StartTimeout time.Duration
	// Logger gets what the plugin logs and what becomes of it, under the
	// provider's name. Nil discards it.
	Logger hclog.Logger
	// Redact is applied to whatever the plugin writes on stderr or stdout before
	// it is logged or put into an error. Nil changes nothing.
	Redact func(string) string
	// TracerProvider gets a span of each call to the plugin. Nil is none.
	TracerProvider trace.TracerProvider
	// Starting is told of each start, and what it returns how that went; the
	// start's own calls get its context. Nil is nobody.
	Starting func(context.Context) (context.Context, func(error))
	// Started is told of each plugin that serves, without holding up anyone, and
	// has it no longer than the call. Nil is nobody.
	Started func(*Instance)
	// HostVersion is told to the plugin.
	HostVersion string
	// Events is told of every change of state. Nil is a ring of its own.
	Events *events.Ring

	// Limits bound what the plugin's own process may use of the machine.
	Limits budget.Limits
	// BudgetInterval is between two readings of what it uses. Zero is
	// [DefaultBudgetInterval].
	BudgetInterval time.Duration
	// Restarts is how often the plugin may die within RestartWindow: once more, and
	// it is in quarantine. Zero is without end. A zero window is
	// [DefaultRestartWindow].
	Restarts      int
	RestartWindow time.Duration

	// LivenessInterval is between two health checks, and how long one may take.
	// Zero is [DefaultLivenessInterval], a negative one means no checks.
	LivenessInterval time.Duration
	// BackoffMax is the longest wait before a start. Zero is
	// [DefaultBackoffMax], a negative one means no wait.
	BackoffMax time.Duration
	// HealthyAfter is how long a plugin must have lived for its death to be the
	// first one. Zero is [DefaultHealthyAfter].
	HealthyAfter time.Duration
	// DrainLimit is how long a plugin that was swapped out may finish the calls
	// that it has. Zero is [DefaultDrainLimit].
	DrainLimit time.Duration
	// IdleTimeout is after what time without calls a plugin is stopped. Zero is
	// never.
	IdleTimeout time.Duration
}

// Supervisor runs the plugin of one provider. Its methods may be called
// concurrently.
type Supervisor struct {
	cfg    Config
	logger hclog.Logger
	status atomic.Pointer[Status]
	calls  atomic.Int64
	// stopping says that the plugin is being ended by Shutdown.
	stopping atomic.Bool
	ctx      context.Context // ends with Shutdown; stops starts and waits
	cancel   context.CancelCauseFunc
	work     sync.WaitGroup // every goroutine of this supervisor

	mu       sync.Mutex
	closed   bool
	start    *attempt             // the start under way
	running  *plugin              // the one that was started last, dead or alive
	leaving  map[*plugin]struct{} // those that finish what they have
	backoff  backoff
	last     catalog.Binary // the last one started, for its digest
	idle     chan struct{}  // closed when no call is in flight; made by Shutdown
	restarts int
	lastErr  error

	quarantine quarantine

	cut  chan struct{} // closed when a shutdown does not wait for callers any more
	gone chan struct{} // closed when Shutdown has ended everything
}

// New makes a supervisor. It starts nothing.
func New(cfg Config) *Supervisor {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.LivenessInterval == 0 {
		cfg.LivenessInterval = DefaultLivenessInterval
	}
	if cfg.BackoffMax == 0 {
		cfg.BackoffMax = DefaultBackoffMax
	}
	if cfg.HealthyAfter == 0 {
		cfg.HealthyAfter = DefaultHealthyAfter
	}
	if cfg.DrainLimit == 0 {
		cfg.DrainLimit = DefaultDrainLimit
	}
	if cfg.BudgetInterval == 0 {
		cfg.BudgetInterval = DefaultBudgetInterval
	}
	if cfg.RestartWindow == 0 {
		cfg.RestartWindow = DefaultRestartWindow
	}
	if cfg.Events == nil {
		cfg.Events = events.New()
	}
	s := &Supervisor{
		cfg:     cfg,
		logger:  cfg.Logger.Named(cfg.Provider),
		cut:     make(chan struct{}),
		gone:    make(chan struct{}),
		leaving: make(map[*plugin]struct{}),
		backoff: backoff{max: cfg.BackoffMax, healthyAfter: cfg.HealthyAfter},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.publish(Status{Provider: cfg.Provider, State: Stopped, Since: time.Now()})
	return s
}

// Acquire returns the running plugin and starts it if there is none. However
// many call it, one process is started. A caller whose ctx ends leaves at once;
// the start goes on for the others and for the next call. Each instance is
// released once.
func (s *Supervisor) Acquire(ctx context.Context) (*Instance, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("provider %s: start: %w", s.cfg.Provider, err)
		}
		s.checkQuarantine()
		inst, at, hold, err := s.join() //nolint:contextcheck // a start is for all callers, not for this one
		switch {
		case err != nil:
			return nil, err
		case inst != nil:
			return inst, nil
		case hold != nil:
			if err := s.waitOut(ctx, hold); err != nil {
				return nil, err
			}
		default:
			select {
			case <-at.done:
				if at.err != nil && !at.canceled {
					return nil, at.err
				}
			case <-ctx.Done():
				return nil, fmt.Errorf("provider %s: its plugin is still starting: %w", s.cfg.Provider, ctx.Err())
			}
		}
	}
}

// hold is what a start waits for: that the end of the last plugin is noted, or else
// a pause.
type hold struct {
	noted <-chan struct{}
	pause time.Duration
}

// join takes the running plugin, or the start under way, or begins one, or tells
// what to wait for before that.
func (s *Supervisor) join() (*Instance, *attempt, *hold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, s.errClosed()
	}
	if p := s.serving(); p != nil {
		p.refs++
		s.calls.Add(1)
		return &Instance{s: s, plugin: p}, nil, nil, nil
	}
	if s.start != nil {
		s.start.needed = true
		return nil, s.start, nil, nil
	}
	if s.running != nil && !s.running.ended { // it counts for what comes next
		return nil, nil, &hold{noted: s.running.noted}, nil
	}
	if s.quarantine.err != nil {
		return nil, nil, nil, s.quarantine.err
	}
	if pause := s.backoff.wait(time.Now()); pause > 0 {
		return nil, nil, &hold{pause: pause}, nil
	}
	at := s.begin()
	at.needed = true
	return nil, at, nil, nil
}

// serving is the plugin that takes calls, or nil. The caller holds s.mu.
func (s *Supervisor) serving() *plugin {
	if s.running != nil && s.running.alive() {
		return s.running
	}
	return nil
}

// waitOut waits for what a start waits for.
func (s *Supervisor) waitOut(ctx context.Context, h *hold) error {
	var over <-chan time.Time
	if h.noted == nil {
		timer := time.NewTimer(h.pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-h.noted:
		return nil
	case <-over:
		return nil
	case <-s.ctx.Done():
		return s.errClosed()
	case <-ctx.Done():
		if h.noted != nil {
			return fmt.Errorf("provider %s: its plugin has just ended: %w", s.cfg.Provider, ctx.Err())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("provider %s: its plugin ended %d times in a row and is started again in %v (last: %w): %w",
			s.cfg.Provider, s.backoff.deaths, h.pause.Round(time.Millisecond), s.lastErr, ctx.Err())
	}
}

func (s *Supervisor) errClosed() error {
	return fmt.Errorf("provider %s: host is shut down: %w", s.cfg.Provider, fs.ErrClosed)
}
