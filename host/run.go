package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// stopConfirm is how long a cancelled caller waits for the word that the
	// command's tree was stopped: its grace, and a little for the way.
	stopConfirm = workspace.StopGrace + 500*time.Millisecond
	// timeoutConfirm is how long after its timeout a command's end is waited
	// for: its grace, as long again for survivors to be reported, and a second
	// for the way. A plugin that is silent then has lost the command.
	timeoutConfirm = 2*workspace.StopGrace + time.Second
	// lastWords is how long output that came before a command was stopped may
	// take to be handed over. A willing writer needs no time, and the death of a
	// plugin is to be told within a second (contract B2).
	lastWords = 500 * time.Millisecond
)

// run is one command under way. Its goroutines are owned by supervise, which
// waits for all of them but those that call into the caller's own reader and
// writers: what blocks there for ever delays nothing else.
type run struct {
	h        *handle
	op       operation
	id       string
	ctx      context.Context //nolint:containedctx // as the contract of Start says: the one given there
	cmd      workspace.Command
	limit    int64     // of output, zero for none
	deadline time.Time // zero for none
	inst     *supervisor.Instance

	callCtx context.Context //nolint:containedctx // of the stream, and not the caller's: see bounded
	cancel  context.CancelFunc
	started chan struct{} // the plugin says that the command was started
	ended   chan struct{} // the stream is over: outcome or failure is set
	broken  chan struct{} // breakage is set
	done    chan struct{} // result and err are set

	mu       sync.Mutex
	changed  *sync.Cond
	out      [2]*output // stdout, stderr
	in       input
	queue    []*berthv1.RunRequest // the start, signals and the stop: sent before stdin
	signals  map[int64]chan error
	sequence int64
	outcome  *berthv1.RunOutcome
	failure  error // why there is no outcome
	breakage error // why the host itself ends the run
	finished bool  // nobody is to send or deliver any more

	result *workspace.Result
	err    error
}

var _ workspace.Process = (*run)(nil)

// Run starts a command and waits for it.
func (h *handle) Run(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
	p, err := h.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// Start starts a command. What the plugin refuses is told here.
func (h *handle) Start(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
	if err := cmd.Validate(); err != nil {
		return nil, err
	}
	if err := h.mayRun(ctx); err != nil {
		return nil, err
	}
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	if cmd.Detached && !s.features.Has(workspace.FeatureAttachRun) {
		return nil, h.op("run", false).wrap(fmt.Errorf("a detached command: %w", errors.ErrUnsupported))
	}
	r, err := h.newRun(ctx, cmd, s)
	if err != nil {
		return nil, err
	}
	go r.supervise()
	select {
	case <-r.started:
	case <-r.done:
		if r.err != nil {
			return nil, r.err
		}
	}
	return r, nil
}

// mayRun keeps a command from making a workspace that cannot run it, for nothing.
func (h *handle) mayRun(ctx context.Context) error {
	if _, made := h.Ref(); made {
		return nil // its own features tell
	}
	op := h.op("run", false)
	inst, err := h.p.acquire(ctx)
	if err != nil {
		return op.wrap(err)
	}
	defer inst.Release()
	// A plugin that announces nothing may have anything.
	features := wire.ToFeatures(inst.Describe().GetFeatures())
	if len(features) > 0 && !features.Has(workspace.FeatureCommands) {
		return op.wrap(fmt.Errorf("workspaces of this provider run no commands: %w", errors.ErrUnsupported))
	}
	return nil
}

// newRun prepares a run. Its timeout counts from here: the workspace is ready,
// and everything after belongs to the command (contract C5).
func (h *handle) newRun(ctx context.Context, cmd workspace.Command, s *session) (*run, error) {
	r := &run{
		h: h, id: "run-" + strings.TrimPrefix(workspace.NewToken(), "berth-"), ctx: ctx, cmd: cmd,
		started: make(chan struct{}), ended: make(chan struct{}), broken: make(chan struct{}), done: make(chan struct{}),
		signals: make(map[int64]chan error),
	}
	r.op = operation{name: "run", runID: r.id, on: h.on(), changes: true}
	r.changed = sync.NewCond(&r.mu)
	switch r.limit = cmd.OutputLimit; r.limit {
	case 0:
		r.limit = workspace.DefaultOutputLimit
	case workspace.NoOutputLimit:
		r.limit = 0
	}
	startCtx := ctx
	if cmd.Timeout > 0 {
		r.deadline = time.Now().Add(cmd.Timeout)
		var cancel context.CancelFunc
		startCtx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	stdout, stderr := serialized(cmd.Stdout, cmd.Stderr)
	r.out = [2]*output{newOutput("stdout", stdout), newOutput("stderr", stderr)}

	var err error
	if r.inst, err = h.p.acquire(startCtx); err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = &workspace.TimeoutError{Timeout: cmd.Timeout}
		}
		return nil, r.op.wrap(err)
	}
	if err := h.p.host.begin(); err != nil {
		r.inst.Release()
		return nil, r.op.wrap(err)
	}
	r.callCtx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.queue = []*berthv1.RunRequest{{Message: &berthv1.RunRequest_Start{Start: r.start(s)}}}
	return r, nil
}

func (r *run) start(s *session) *berthv1.RunStart {
	env := maps.Clone(r.h.env)
	if env == nil {
		env = make(map[string]string, len(r.cmd.Env))
	}
	maps.Copy(env, r.cmd.Env)
	start := &berthv1.RunStart{
		Workspace: s.key, RunId: r.id, Args: wire.FromBytesList(r.cmd.Args), Dir: []byte(r.cmd.Dir), Env: wire.FromEnv(env),
		OutputLimit: r.limit, Stdin: r.cmd.Stdin != nil, Detached: r.cmd.Detached,
		FullTimeoutNs: int64(r.cmd.Timeout),
	}
	if r.cmd.Script != "" {
		start.Script = []byte(r.cmd.Script)
	}
	if !r.deadline.IsZero() {
		start.TimeoutNs = max(int64(time.Until(r.deadline)), 1) // zero would be none
	}
	return start
}

// supervise owns the run from its start to its result.
func (r *run) supervise() {
	defer r.h.p.host.tasks.Done()
	var transport, delivery sync.WaitGroup
	transport.Go(r.exchange)
	for _, o := range r.out {
		if o.writer != nil {
			delivery.Go(func() { r.deliver(o) })
		}
	}
	if r.cmd.Stdin != nil {
		go r.pump() // may wait in the caller's reader for ever
	}
	delivered := make(chan struct{})
	go func() { // may wait in the caller's writers for ever
		delivery.Wait()
		close(delivered)
	}()

	r.result, r.err = r.conclude(delivered)

	r.mu.Lock()
	r.finished = true
	r.changed.Broadcast()
	r.mu.Unlock()
	r.cancel()
	transport.Wait()
	close(r.done)
}

// conclude waits for the first thing that ends the run, and tells its result.
func (r *run) conclude(delivered <-chan struct{}) (*workspace.Result, error) {
	var timeout, confirm <-chan time.Time
	if !r.deadline.IsZero() {
		left := time.Until(r.deadline)
		t, c := time.NewTimer(left), time.NewTimer(left+timeoutConfirm)
		defer t.Stop()
		defer c.Stop()
		timeout, confirm = t.C, c.C
	}
	closed := r.h.p.host.ctx.Done()
	select {
	case <-r.ended:
	case <-r.ctx.Done():
		return nil, r.stop(r.ctx.Err(), stopConfirm)
	case <-r.broken:
		return nil, r.stop(r.breakage, timeoutConfirm)
	case <-confirm:
		return nil, r.op.wrap(r.timedOut(fmt.Sprintf("the plugin did not confirm within %v that the command was stopped", timeoutConfirm)))
	}
	if r.failure != nil || r.outcome.GetError() != nil {
		wait := time.NewTimer(lastWords)
		defer wait.Stop()
		select {
		case <-delivered:
		case <-wait.C:
		case <-r.ctx.Done():
		}
		return nil, r.unsuccessful()
	}
	// The command is over, but what it wrote is not yet handed over.
	select {
	case <-delivered:
		select {
		case <-r.broken: // a writer that failed on the last bytes
			return nil, r.op.wrap(r.breakage)
		default:
		}
		return r.exited()
	case <-r.broken:
		return nil, r.op.wrap(r.breakage)
	case <-r.ctx.Done():
		return nil, r.op.wrap(r.ctx.Err())
	case <-timeout:
		return nil, r.op.wrap(r.timedOut(""))
	case <-closed:
		return nil, r.op.wrap(errClosed)
	}
}

// stop has the plugin stop the command and waits a little for its word.
func (r *run) stop(why error, confirm time.Duration) error {
	r.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stop{Stop: &berthv1.RunStop{}}})
	wait := time.NewTimer(confirm)
	defer wait.Stop()
	select {
	case <-r.ended:
	case <-wait.C:
		return r.op.wrap(r.withPartial(fmt.Errorf("%w (the plugin did not confirm within %v that the command was stopped)", why, confirm)))
	}
	return r.op.wrap(r.withPartial(r.withWord(why)))
}

// withWord adds what the plugin told of a stop that the host asked for: what
// could not be stopped, above all (contract C5).
func (r *run) withWord(why error) error {
	if r.outcome.GetError() == nil {
		return why
	}
	word := r.h.p.remote(r.outcome.GetError())
	var limit, told *workspace.OutputLimitError
	if errors.As(why, &limit) && errors.As(word, &told) { // the plugin had found it too
		limit.Survivors = told.Survivors
		return why
	}
	return fmt.Errorf("%w (%s)", why, word.Error())
}

// unsuccessful is the error of a run that the plugin, or its death, ended.
func (r *run) unsuccessful() error {
	if r.failure != nil {
		return r.failure // wrapped where it was found
	}
	err := r.h.p.remote(r.outcome.GetError())
	var pathErr *fs.PathError
	if r.cmd.Dir != "" && errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: r.cmd.Dir, Err: pathErr.Err}
	}
	if errors.Is(err, context.Canceled) && r.ctx.Err() != nil {
		err = r.ctx.Err()
	}
	return r.op.wrap(r.withPartial(err))
}

func (r *run) timedOut(survivors string) error {
	return r.withPartial(&workspace.TimeoutError{Timeout: r.cmd.Timeout, Survivors: survivors})
}

// withPartial fills in the beginnings of both streams, which travelled as
// output and not with the error.
func (r *run) withPartial(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var timeout *workspace.TimeoutError
	if errors.As(err, &timeout) {
		timeout.Stdout, timeout.Stderr = r.out[0].beginning(), r.out[1].beginning()
	}
	var limit *workspace.OutputLimitError
	if errors.As(err, &limit) {
		limit.Stdout, limit.Stderr = r.out[0].beginning(), r.out[1].beginning()
	}
	return err
}

// exited is the result of a command that ended by itself.
func (r *run) exited() (*workspace.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &workspace.Result{
		RunID: r.id, ExitCode: int(r.outcome.GetExited().GetCode()),
		Stdout: r.out[0].collected, Stderr: r.out[1].collected,
	}, nil
}

// ID is the host's name of this run.
func (r *run) ID() string { return r.id }

// Wait returns when the command is done and its output has been handed over.
func (r *run) Wait() (*workspace.Result, error) {
	<-r.done
	return r.result, r.err
}

// breakWith ends the run for a reason of the host's own; the first one counts.
// What arrives from now on is dropped.
func (r *run) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.breakage != nil {
		return
	}
	r.breakage = err
	for _, o := range r.out {
		o.drop()
	}
	close(r.broken)
	r.changed.Broadcast()
}
