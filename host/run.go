package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// ackWait is how long a plugin may take to end its stream after it was told that
// a run's outcome was taken. Nobody waits for that but the host's own end.
const ackWait = time.Second

// run is one command under way, or the following of one. Its goroutines are
// owned by supervise, which waits for all of them but those that call into the
// caller's own reader and writers: what blocks there for ever delays nothing else.
type run struct {
	h        *handle
	op       operation
	id       string
	ctx      context.Context //nolint:containedctx // as the contract of Start says: the one given there
	cmd      workspace.Command
	limit    int64     // of output, zero for none
	deadline time.Time // zero for none
	key      *berthv1.WorkspaceKey
	// registry is who noted the workspace's runs before this one was sent to anybody,
	// as far as was told.
	registry []byte
	// durable: it outlives its stream, and is attached again (contract B3).
	durable bool
	// follow is set for a run that was attached and not started here. What ends
	// the following does not stop the command.
	follow *workspace.AttachOptions

	callCtx context.Context //nolint:containedctx // of the streams, and not the caller's: see bounded
	cancel  context.CancelFunc
	started chan struct{} // the plugin says that the command was started, or is attached
	ended   chan struct{} // the last stream is over: outcome or failure is set
	broken  chan struct{} // breakage is set
	done    chan struct{} // result and err are set
	asked   chan struct{} // somebody called Wait

	mu       sync.Mutex
	changed  *sync.Cond
	inst     *supervisor.Instance // the last one
	link     *link                // the stream in use, nil between two of them
	sent     time.Time            // before the start was sent first; of exchange alone
	out      [2]*output           // stdout, stderr
	in       input
	queue    []*berthv1.RunRequest // the start, signals and the stop: sent before stdin
	signals  map[int64]*pendingSignal
	sequence int64
	stopping bool // the plugin was or will be told to stop the command
	outcome  *berthv1.RunOutcome
	failure  error // why there is no outcome
	breakage error // why the host itself ends the run
	finished bool  // nobody is to send or deliver any more
	taken    bool  // the outcome too was handed over: the run may be forgotten
	// observation is of its end; nil is nobody's.
	observation *observation

	ask    sync.Once
	told   bool // result or err is the command's own; of supervise alone
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
	r := h.newRun(ctx, cmd, s)
	startCtx := ctx
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		startCtx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	if err := r.begin(startCtx); err != nil {
		if ctx.Err() == nil && startCtx.Err() != nil { // a start has a time of its own, which may have passed too
			err = r.op.wrap(&workspace.TimeoutError{Timeout: cmd.Timeout})
		}
		return nil, err
	}
	r.queue = []*berthv1.RunRequest{{Message: &berthv1.RunRequest_Start{Start: r.start()}}}
	return r.running() //nolint:contextcheck // it has its own
}

// mayRun known a command from making a workspace that cannot run it, for nothing.
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
func (h *handle) newRun(ctx context.Context, cmd workspace.Command, s *session) *run {
	r := h.prepare(ctx, "run-"+strings.TrimPrefix(workspace.NewToken(), "berth-"), cmd, s)
	r.op = operation{name: "run", runID: r.id, on: h.on(), changes: true}
	switch r.limit = cmd.OutputLimit; r.limit {
	case 0:
		r.limit = workspace.DefaultOutputLimit
	case workspace.NoOutputLimit:
		r.limit = 0
	}
	if cmd.Timeout > 0 {
		r.deadline = time.Now().Add(cmd.Timeout)
	}
	return r
}

// newFollowing prepares the following of a run that was started before.
func (h *handle) newFollowing(ctx context.Context, op operation, opts workspace.AttachOptions, s *session) *run {
	r := h.prepare(ctx, op.runID, workspace.Command{Stdout: opts.Stdout, Stderr: opts.Stderr}, s)
	r.op, r.follow = op, &opts
	r.out[0].startAt(opts.StdoutOffset)
	r.out[1].startAt(opts.StderrOffset)
	return r
}

func (h *handle) prepare(ctx context.Context, id string, cmd workspace.Command, s *session) *run {
	r := &run{
		h: h, id: id, ctx: ctx, cmd: cmd, key: s.key, registry: h.knownRegistry(), durable: s.features.Has(workspace.FeatureAttachRun),
		started: make(chan struct{}), ended: make(chan struct{}), broken: make(chan struct{}), done: make(chan struct{}), asked: make(chan struct{}),
		signals: make(map[int64]*pendingSignal),
	}
	r.changed = sync.NewCond(&r.mu)
	stdout, stderr := serialized(cmd.Stdout, cmd.Stderr)
	r.out = [2]*output{newOutput("stdout", stdout), newOutput("stderr", stderr)}
	return r
}

// begin takes what a run needs of host and plugin. Supervise gives it back.
func (r *run) begin(ctx context.Context) error {
	inst, err := r.h.p.acquire(ctx)
	if err != nil {
		return r.op.wrap(err)
	}
	if err := r.h.p.host.begin(); err != nil {
		inst.Release()
		return r.op.wrap(err)
	}
	r.inst = inst
	r.callCtx, r.cancel = context.WithCancel(context.WithoutCancel(r.ctx))
	return nil
}

// running has a run that began go on, and returns it when it is started.
func (r *run) running() (workspace.Process, error) {
	go r.supervise()
	select {
	case <-r.started:
	case <-r.done:
		if r.err != nil {
			r.ask.Do(func() { close(r.asked) }) // this is how it ended
			return nil, r.err
		}
	}
	return r, nil
}

func (r *run) start() *berthv1.RunStart {
	env := maps.Clone(r.h.env)
	if env == nil {
		env = make(map[string]string, len(r.cmd.Env))
	}
	maps.Copy(env, r.cmd.Env)
	start := &berthv1.RunStart{
		Workspace: r.key, RunId: r.id, Args: wire.FromBytesList(r.cmd.Args), Dir: []byte(r.cmd.Dir), Env: wire.FromEnv(env),
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

// supervise owns the run from its start to its result, and what is left to do
// after that.
func (r *run) supervise() {
	defer r.h.p.host.tasks.Done()
	var delivery sync.WaitGroup
	exchanged := make(chan struct{})
	go func() {
		defer close(exchanged)
		r.exchange()
	}()
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
	r.tellEnd()
	known := r.durable && r.outcome != nil && (r.told || !r.goesOn())
	lost := r.durable && r.outcome == nil && r.stopping
	r.changed.Broadcast()
	r.mu.Unlock()
	if known {
		close(r.done)
		r.acknowledge(exchanged)
	}
	r.cancel()
	<-exchanged
	if !known {
		close(r.done)
	}
	if lost {
		r.stopLost()
	}
}

// acknowledge tells the plugin that the outcome was taken, and gives it a moment
// to hear that. What goes on without this host is taken by Wait alone: nobody
// may have asked here how it ended, and somebody else may later.
func (r *run) acknowledge(exchanged <-chan struct{}) {
	if r.goesOn() && !r.wasAsked() {
		select {
		case <-r.asked:
		case <-exchanged:
			return
		case <-r.h.p.host.closing:
			return
		}
	}
	r.mu.Lock()
	r.taken = true
	r.changed.Broadcast()
	r.mu.Unlock()
	wait := time.NewTimer(ackWait)
	defer wait.Stop()
	select {
	case <-exchanged:
	case <-wait.C:
	}
}

func (r *run) wasAsked() bool {
	select {
	case <-r.asked:
		return true
	default:
		return false
	}
}

// isOver says whether the outcome or the failure is known.
func (r *run) isOver() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// goesOn reports whether the command goes on when nobody here follows it.
func (r *run) goesOn() bool { return r.cmd.Detached || r.follow != nil }

func (r *run) lastInstance() *supervisor.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inst
}

// ID is the host's name of this run.
func (r *run) ID() string { return r.id }

// Wait returns when the command is done and its output has been handed over.
func (r *run) Wait() (*workspace.Result, error) {
	r.ask.Do(func() { close(r.asked) })
	<-r.done
	return r.result, r.err
}

// breakWith ends the run for a reason of the host's own; the first one counts.
// What arrives from now on is dropped.
func (r *run) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breakOff(err)
}

// breakOff is breakWith for who holds r.mu.
func (r *run) breakOff(err error) {
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
