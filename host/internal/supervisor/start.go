package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/catalog"
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
	started    time.Time
	ended      bool          // it is to be closed when the last caller has left
	refs       int           // callers who have it
	free       chan struct{} // closed when it has ended and nobody has it
}

func (p *plugin) alive() bool { return !p.ended && !exited(p.backend.Exited()) }

// runStart owns one start. It logs last and without the lock: a logger that
// blocks holds up nobody.
func (s *Supervisor) runStart(at *attempt) {
	s.mu.Lock()
	s.update(func(st *Status) { st.State = Starting })
	s.mu.Unlock()
	timeout := s.cfg.StartTimeout
	if timeout == 0 {
		timeout = process.DefaultStartTimeout
	}
	began := time.Now()
	p, err := s.launch(timeout)
	s.finishStart(at, p, err)
	if err != nil {
		s.logger.Warn("plugin did not start", "error", err)
		return
	}
	s.logger.Debug("plugin started", "pid", p.backend.PID(), "path", p.binary.Path, "version", p.describe.GetVersion(), "took", time.Since(began))
}

// finishStart tells all who wait what became of the start.
func (s *Supervisor) finishStart(at *attempt, p *plugin, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(at.done)
	s.start = nil
	at.err = err
	switch {
	case err != nil && s.closed:
		at.err = s.errClosed()
	case err != nil:
		s.backoff.died(time.Now(), 0)
		s.lastErr = err
		s.update(func(st *Status) { st.State, st.PID, st.LastError = Failed, 0, err })
	default:
		s.running = p
		s.starts++
		s.update(func(st *Status) {
			st.State = Running
			st.PID = p.backend.PID()
			st.Plugin, st.Version, st.Protocol = p.describe.GetName(), p.describe.GetVersion(), p.backend.Version()
			st.Features, st.Environment = p.describe.GetFeatures(), p.describe.GetEnvironment()
			st.Path, st.digest, st.dropped = p.binary.Path, p.binary.KnownDigest, p.backend.Dropped
			st.Started = p.started
			st.Restarts = s.starts - 1
		})
		s.work.Go(func() { s.watch(p) })
	}
}

var errStartTimeout = errors.New("start timeout")

// launch starts the plugin, describes and configures it. If it fails, nothing
// is left.
func (s *Supervisor) launch(timeout time.Duration) (*plugin, error) {
	began := time.Now()
	p := &plugin{free: make(chan struct{})}
	var err error
	if p.backend, p.binary, err = s.open(timeout); err != nil {
		return nil, err
	}
	p.started = time.Now()
	p.client = berthv1.NewProviderClient(p.backend.Conn())
	// Not a deadline, which gRPC would tell the plugin: its own giving up could
	// then come first, and hide what happened.
	ctx, cancel := context.WithCancelCause(s.ctx)
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

// open starts the process, or serves in this one.
func (s *Supervisor) open(timeout time.Duration) (backend, catalog.Binary, error) {
	if s.cfg.InProcess != nil {
		l, err := serveLocal(s.cfg.InProcess)
		if err != nil {
			return nil, catalog.Binary{}, fmt.Errorf("provider %s: serve in this process: %w", s.cfg.Provider, err)
		}
		return l, catalog.Binary{}, nil
	}
	bin, err := s.cfg.Find()
	if err != nil {
		return nil, catalog.Binary{}, process.StartFailed(s.cfg.Provider, err)
	}
	if bin.Same(s.last) {
		bin = s.last // which may know its digest
	}
	s.last = bin
	proc, err := process.Start(s.ctx, process.Config{
		Provider: s.cfg.Provider, Path: bin.Path, Dir: s.cfg.Dir, Env: s.cfg.Env,
		StartTimeout: timeout, Logger: s.logger, Redact: s.cfg.Redact,
	})
	if err != nil {
		return nil, catalog.Binary{}, err // not a nil *Process in an interface
	}
	return proc, bin, nil
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
	case errors.Is(context.Cause(ctx), errStartTimeout):
		why = fmt.Sprintf("the start took too long; it waited for the answer to %s", op)
	}
	failure := process.StartFailed(s.cfg.Provider, errors.New(why))
	failure.PID, failure.ExitStatus, failure.Stderr = p.backend.PID(), p.backend.ExitStatus(), p.backend.Stderr()
	return failure
}
