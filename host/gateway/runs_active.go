package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

// exitTerminated is what a run that was asked to stop answers: the exit code of a
// command that SIGTERM ends, which is what its processes were sent. What it truly
// was is not known then.
const exitTerminated = 128 + 15

// Why a run's context ends, besides its client and its session.
var (
	errStopped  = errors.New("the run was stopped")
	errShutdown = errors.New("the gateway ends")
)

// runKey names a run.
type runKey struct{ session, id string }

// runSpec is a run to be.
type runSpec struct {
	key     runKey
	command workspace.Command // its stdin and writers are the run's own
	keep    int               // of its output, in the log
	input   bool              // stdin is written to by others
	// lead has the command wait for the client, so that nothing of its output is lost.
	lead bool
	// background has it go on when its client goes, until the gateway ends.
	background bool
}

// activeRun is a run of this gateway: one that goes, or one in the background that
// has ended and whose output is kept for a while.
type activeRun struct {
	key     runKey
	opened  time.Time // when its session was, for another one that gets the same id
	log     *runLog
	lead    *follower // nil unless asked for
	input   *runInput // nil if stdin was at its end from the beginning
	started chan struct{}
	process workspace.Process // once started is closed

	use      *session.Use
	ctx      context.Context //nolint:containedctx // the run's own: why it ends is its cause
	cancel   context.CancelCauseFunc
	leave    context.CancelFunc
	entered  func(session.RunEnd) // takes it out of the listing
	observed *observation
	counted  func(outcome string)

	ended chan struct{}
	end   runOutcome // once ended is closed
}

// runOutcome is how a run ended: with an exit code unless one of the others says
// why not.
type runOutcome struct {
	exitCode  *int
	timedOut  bool
	limited   bool
	limit     int64
	stopped   bool
	survivors bool
	err       error
}

// detail is that in words, for logs.
func (o runOutcome) detail() string {
	var text string
	switch {
	case o.stopped:
		text = "stopped"
	case o.exitCode != nil:
		text = "exit " + strconv.Itoa(*o.exitCode)
	case o.timedOut:
		text = "timed out"
	case o.limited:
		text = "output limit"
	default:
		text = failureDetail(o.err)
	}
	if o.survivors {
		text += ", not all of it could be ended"
	}
	return text
}

// start starts a run, which must then be finished. One that could not be started
// is an error; one that has ended already, by its timeout or a stop, is not.
func (g *Gateway) start(ctx context.Context, spec runSpec) (*activeRun, error) {
	if err := invalidCommand(spec.command); err != nil {
		return nil, err
	}
	use, err := g.sessions.Acquire(ctx, spec.key.session)
	if err != nil {
		return nil, err
	}
	r := &activeRun{
		key: spec.key, log: newRunLog(spec.keep), use: use,
		started: make(chan struct{}), ended: make(chan struct{}),
		observed: g.observe(spec.key.session, "run", commandText(spec.command)), counted: g.metrics.runBegan(),
	}
	if spec.background {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, r.leave = use.Context(ctx)
	ctx, r.cancel = context.WithCancelCause(ctx)
	r.ctx = ctx
	r.entered, err = g.sessions.RunBegin(ctx, session.RunInfo{
		Session: spec.key.session, ID: spec.key.id, Args: arguments(spec.command), Detached: spec.background,
	}, func() { r.cancel(errStopped) })
	if err == nil {
		err = g.launch(ctx, r, spec)
	}
	if err != nil {
		g.finish(ctx, r, nil, err)
		if r.end.err != nil {
			return nil, r.end.err
		}
	}
	return r, nil
}

func (g *Gateway) launch(ctx context.Context, r *activeRun, spec runSpec) error {
	if spec.background {
		info, err := g.sessions.Get(ctx, spec.key.session)
		if err != nil {
			return err
		}
		r.opened = info.Created
		if err := g.runs.holdBackground(r); err != nil {
			return err
		}
	}
	if spec.lead {
		r.lead, _ = r.log.follow(0, 0, true)
	}
	cmd := spec.command
	cmd.Stdout, cmd.Stderr = logWriter{r.log, stdoutStream}, logWriter{r.log, stderrStream}
	if spec.input {
		r.input = newRunInput()
		cmd.Stdin = r.input
	}
	// Before it starts: whoever sees what it does also finds it.
	g.runs.add(r)
	process, err := r.use.Workspace.Start(ctx, cmd)
	if err != nil {
		return err
	}
	r.process = process
	close(r.started)
	return nil
}

// wait waits for the end of a run, and finishes it. Once for each.
func (g *Gateway) wait(ctx context.Context, r *activeRun) {
	select {
	case <-r.ended:
	default:
		result, err := r.process.Wait()
		g.finish(ctx, r, result, err)
	}
}

// finish gives back what a run held.
func (g *Gateway) finish(ctx context.Context, r *activeRun, result *workspace.Result, err error) {
	r.conclude(context.WithoutCancel(ctx), result, err)
	r.log.end()
	if r.input != nil {
		r.input.abandon()
	}
	if r.entered != nil {
		r.entered(session.RunEnd{ExitCode: r.end.exitCode, Detail: r.end.detail()})
	}
	r.observed.done(r.end.exitCode != nil && *r.end.exitCode == 0, r.end.detail())
	r.counted(r.end.outcome())
	r.cancel(nil)
	r.leave()
	r.use.Release()
	close(r.ended)
	g.runs.ended(r)
}

// cause is why the run's context has ended, or nil.
func (r *activeRun) cause() error { return context.Cause(r.ctx) }

// conclude tells what the end of a command means.
func (r *activeRun) conclude(ctx context.Context, result *workspace.Result, err error) {
	var timeout *workspace.TimeoutError
	var limit *workspace.OutputLimitError
	var refused *session.Error
	cause := r.cause()
	switch {
	case err == nil:
		r.end.exitCode = &result.ExitCode
	case errors.As(err, &timeout):
		r.end.timedOut, r.end.survivors = true, timeout.Survivors != ""
	case errors.As(err, &limit):
		r.end.limited, r.end.limit, r.end.survivors = true, limit.Limit, limit.Survivors != ""
	case errors.Is(cause, errStopped):
		// A session that is closed or purged stops its runs too.
		if err := r.use.Check(ctx, err); errors.As(err, &refused) {
			r.end.err = err
			return
		}
		code := exitTerminated
		r.end.stopped, r.end.exitCode = true, &code
	case errors.Is(cause, errShutdown):
		r.end.err = errText(http.StatusBadGateway, "the gateway ended, and the run with it")
	case errors.As(cause, &refused):
		r.end.err = refused
	default:
		r.end.err = r.use.Check(ctx, err)
	}
}
