package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/host/internal/process"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// plugin is one that was started, with what it told.
type plugin struct {
	backend    backend
	client     berthv1.ProviderClient
	binary     catalog.Binary
	describe   *berthv1.DescribeResponse
	configured *berthv1.ConfigureResponse
	sent       []string // names of the conventional variables that it was given
	started    time.Time

	// Guarded by the supervisor's mutex.
	ended     bool          // the process has
	isLeaving bool          // it gets no new callers
	isStopped bool          // it was told to end, since nobody has it any more
	refs      int           // callers who have it
	released  time.Time     // when it was let go last
	freed     bool          // free is closed
	free      chan struct{} // closed when nobody has it and nobody will again
	leaving   chan struct{} // closed when it is leaving
	noted     chan struct{} // closed with ended
}

func newPlugin() *plugin {
	return &plugin{free: make(chan struct{}), leaving: make(chan struct{}), noted: make(chan struct{})}
}

func (p *plugin) alive() bool { return !p.ended && !exited(p.backend.Exited()) }

// settle notes that nobody has the plugin any more, if that is so for good. The
// caller holds the supervisor's mutex.
func (p *plugin) settle() {
	if p.refs == 0 && (p.ended || p.isLeaving) && !p.freed {
		p.freed = true
		close(p.free)
	}
}

// attempt is one start, with all who wait for it.
type attempt struct {
	done   chan struct{} // closed when what follows is set for good
	cancel context.CancelCauseFunc
	binary catalog.Binary // the one that was found
	before State          // of the provider
	err    error

	// Guarded by the supervisor's mutex until done.
	asking   int  // callers of Reload who wait
	needed   bool // a call waits for it: it goes on whoever leaves
	canceled bool // nobody waits for it any more
}

// begin begins a start. The caller holds s.mu and knows that none is under way.
func (s *Supervisor) begin() *attempt {
	at := &attempt{done: make(chan struct{})}
	var ctx context.Context
	ctx, at.cancel = context.WithCancelCause(s.ctx)
	s.start = at
	s.work.Go(func() { s.runStart(ctx, at) })
	return at
}

// runStart owns one start. It logs last and without the lock: a logger that
// blocks holds up nobody.
func (s *Supervisor) runStart(ctx context.Context, at *attempt) {
	defer at.cancel(nil)
	s.mu.Lock()
	old := s.serving()
	at.before = s.status.Load().State
	if old == nil {
		s.update(func(st *Status) { st.State = Starting })
	}
	s.mu.Unlock()
	timeout := s.cfg.StartTimeout
	if timeout == 0 {
		timeout = process.DefaultStartTimeout
	}
	began := time.Now()
	startCtx, observed := ctx, func(error) {}
	if s.cfg.Starting != nil {
		startCtx, observed = s.cfg.Starting(ctx)
	}
	p, err := s.launch(startCtx, at, old, timeout)
	observed(err)
	refused := s.finishStart(at, p, err) //nolint:contextcheck // what it begins outlives the start
	switch {
	case refused != nil:
		s.logger.Warn("plugin was not swapped", "error", err, "path", at.binary.Path, "pid", refused.backend.PID())
	case err != nil && ctx.Err() != nil: // by a shutdown, or since nobody waited any more
		s.logger.Debug("plugin was not waited for", "error", err)
	case err != nil:
		s.logger.Warn("plugin did not start", "error", err)
	default:
		s.logger.Debug("plugin started", "pid", p.backend.PID(), "path", p.binary.Path, "version", p.describe.GetVersion(), "took", time.Since(began))
		if s.cfg.Started != nil {
			s.cfg.Started(&Instance{s: s, plugin: p})
		}
	}
}

// finishStart tells all who wait what became of the start. It returns the plugin
// that serves on, if a new one was refused.
func (s *Supervisor) finishStart(at *attempt, p *plugin, err error) (refused *plugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(at.done)
	old := s.serving()
	s.start = nil
	at.err = err
	switch {
	case err != nil && s.closed:
		at.err = s.errClosed()
	case err != nil && at.canceled:
		at.err = fmt.Errorf("provider %s: the start of its plugin was given up: %w", s.cfg.Provider, context.Canceled)
		if old == nil {
			s.update(func(st *Status) {
				if st.State = at.before; st.State != Stopped {
					st.State = Failed
				}
			})
		}
		s.cfg.Events.Add(events.SwapRefused, "given up: nobody waited for it any more")
	case err != nil && old != nil:
		s.update(func(st *Status) { st.SwapError = err })
		s.cfg.Events.Add(events.SwapRefused, fmt.Sprintf("pid %d serves on: %v", old.backend.PID(), err))
		return old
	case err != nil:
		s.backoff.died(time.Now(), 0)
		s.lastErr = err
		s.update(func(st *Status) { st.State, st.PID, st.LastError = Failed, 0, err })
		s.cfg.Events.Add(events.StartFailed, err.Error())
		s.noteDeath(err)
	default:
		s.install(p, old)
	}
	return nil
}

// install has p take the calls from now on, and old leave if there is one. The
// caller holds s.mu.
func (s *Supervisor) install(p, old *plugin) {
	if old == nil && s.running != nil { // which died, though watch may not have said so yet
		s.restarts++
	}
	s.running = p
	p.released = p.started
	s.update(func(st *Status) {
		st.State = Running
		st.PID = p.backend.PID()
		st.Plugin, st.Version, st.Protocol = p.describe.GetName(), p.describe.GetVersion(), p.backend.Version()
		st.Features, st.Environment = p.describe.GetFeatures(), p.describe.GetEnvironment()
		st.Configured, st.Sent = p.configured, p.sent
		st.Path, st.digest, st.dropped = p.binary.Path, p.binary.KnownDigest, p.backend.Dropped
		st.Pin, st.Pinned = p.binary.Pin()
		st.Started, st.Restarts, st.SwapError = p.started, s.restarts, nil
	})
	what := fmt.Sprintf("pid %d, version %s, protocol %d, %s", p.backend.PID(), p.describe.GetVersion(), p.backend.Version(), p.from())
	if old == nil {
		s.cfg.Events.Add(events.Started, what)
	} else {
		s.backoff = backoff{max: s.backoff.max, healthyAfter: s.backoff.healthyAfter} // of another one
		s.cfg.Events.Add(events.Swapped, fmt.Sprintf("%s; pid %d is leaving with %d calls", what, old.backend.PID(), old.refs))
		s.retire(old)
	}
	s.work.Go(func() { s.watch(p) })
}

// from is where the plugin is from.
func (p *plugin) from() string {
	if p.binary.Path == "" {
		return "in this process"
	}
	return p.binary.Path
}

var errStartTimeout = errors.New("start timeout")

// launch starts the plugin, beside the old one if there is one, describes and
// configures it. If it fails, nothing is left.
func (s *Supervisor) launch(ctx context.Context, at *attempt, old *plugin, timeout time.Duration) (*plugin, error) {
	began := time.Now()
	p := newPlugin()
	var err error
	if s.cfg.Find != nil {
		if p.binary, err = s.find(); err != nil {
			return nil, err
		}
		at.binary = p.binary
	}
	if old == nil {
		s.cfg.Events.Add(events.Start, p.from())
	} else {
		s.cfg.Events.Add(events.Swap, fmt.Sprintf("%s, beside pid %d", p.from(), old.backend.PID()))
	}
	if p.backend, err = s.open(ctx, p.binary, timeout); err != nil {
		return nil, err
	}
	p.started = time.Now()
	p.client = berthv1.NewProviderClient(p.backend.Conn())
	// Not a deadline, which gRPC would tell the plugin: its own giving up could
	// then come first, and hide what happened.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(time.Until(began.Add(timeout)), func() { cancel(errStartTimeout) }).Stop()
	if err := s.setUp(ctx, p); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), setUpStop)
		defer cancel()
		if stopErr := p.backend.Stop(stopCtx); stopErr != nil {
			s.logger.Error("plugin whose set-up failed was not stopped", "error", stopErr)
		}
		return nil, err
	}
	return p, nil
}

// find looks the binary up.
func (s *Supervisor) find() (catalog.Binary, error) {
	bin, err := s.cfg.Find()
	if err != nil {
		return catalog.Binary{}, process.StartFailed(s.cfg.Provider, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bin.Same(s.last) {
		bin = s.last // which may know its digest
	}
	s.last = bin
	return bin, nil
}

// open starts the process, or serves in this one.
func (s *Supervisor) open(ctx context.Context, bin catalog.Binary, timeout time.Duration) (backend, error) {
	if s.cfg.InProcess != nil {
		l, err := serveLocal(s.cfg.InProcess, s.cfg.TracerProvider)
		if err != nil {
			return nil, fmt.Errorf("provider %s: serve in this process: %w", s.cfg.Provider, err)
		}
		return l, nil
	}
	proc, err := process.Start(ctx, process.Config{
		Provider: s.cfg.Provider, Path: bin.Path, Open: bin.Open, Dir: s.cfg.Dir, Env: s.cfg.Env,
		Limits: s.cfg.Limits, StartTimeout: timeout, Logger: s.logger, Redact: s.cfg.Redact, TracerProvider: s.cfg.TracerProvider,
	})
	if err != nil {
		return nil, err // not a nil *Process in an interface
	}
	return proc, nil
}

// setUpStop is how long a plugin whose set-up failed may take to end by itself.
const setUpStop = time.Second

// setUp asks the plugin what it is and gives it its configuration.
func (s *Supervisor) setUp(ctx context.Context, p *plugin) error {
	var err error
	if p.describe, err = p.client.Describe(ctx, &berthv1.DescribeRequest{HostVersion: s.cfg.HostVersion}); err != nil {
		return s.setUpError(ctx, p, "describe", err)
	}
	if s.cfg.Configure == nil {
		return nil
	}
	req, err := s.cfg.Configure(ctx, p.binary, p.describe)
	if err != nil || req == nil {
		return err
	}
	if p.configured, err = p.client.Configure(ctx, req); err != nil {
		return s.setUpError(ctx, p, "configure", err)
	}
	for _, v := range req.GetEnvironment() {
		p.sent = append(p.sent, string(v.GetName()))
	}
	return nil
}

// setUpError tells a plugin that refuses, with its own error, from one that
// fails.
func (s *Supervisor) setUpError(ctx context.Context, p *plugin, op string, err error) error {
	if wire.Answered(err) {
		if detail := wire.Detail(err); detail != nil {
			err = Remote(detail, s.redact)
		} else {
			err = wire.FromStatus(status.Error(status.Code(err), s.redact(status.Convert(err).Message())))
		}
		return fmt.Errorf("provider %s: %s: %w", s.cfg.Provider, op, err)
	}
	if s.ctx.Err() != nil {
		return s.errClosed()
	}
	if errors.Is(context.Cause(ctx), errGivenUp) {
		return errGivenUp
	}
	if connectionLost(err) {
		await(p.backend.Exited())
	}
	if exited(p.backend.Exited()) {
		await(p.backend.Finished())
	}
	why := fmt.Sprintf("its answer to %s: %s", op, s.redact(status.Convert(err).Message()))
	switch {
	case exited(p.backend.Exited()):
		why = "the plugin ended while it was asked to " + op
		if oom := p.backend.OutOfMemory(); oom != "" {
			why = fmt.Sprintf("the kernel ended the plugin while it was asked to %s: %s", op, oom)
		}
	case errors.Is(context.Cause(ctx), errStartTimeout):
		why = fmt.Sprintf("the start took too long; it waited for the answer to %s", op)
	}
	failure := process.StartFailed(s.cfg.Provider, errors.New(why))
	failure.PID, failure.ExitStatus, failure.Stderr = p.backend.PID(), p.backend.ExitStatus(), p.backend.Stderr()
	return failure
}
