package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// stopWait is how long after the grace a Stop may take: two seconds to tell
	// what survived (contract C5), and a little for the telling.
	stopWait = 2500 * time.Millisecond
	// endWait is how long a Start or a Wait may go on after the command was
	// stopped: then it is reported, not waited for (contract C5).
	endWait = 2 * time.Second
	// drainWait is for the last output of a command that was stopped.
	drainWait = 250 * time.Millisecond
	// outputWait is how long the outputs of a command that ended may stay open
	// without a byte: ten times what contract C8 allows a provider.
	outputWait = 10 * time.Second
	// maxSignals is how many signals wait for a provider that delivers slowly.
	maxSignals = 64
	// maxResults is how many results of signals wait for a host that does not
	// read. One that sends still more does not mean it.
	maxResults = 16 * maxSignals
)

var (
	errClosing = errors.New("the plugin is ending")
	// errEnding is errClosing where runs outlive their streams: what serves them ends
	// with the workspace that it is in.
	errEnding = fmt.Errorf("the workspace is ending: %w", workspace.ErrUnavailable)
)

var runIDPattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

type runStream = grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]

// run is one command. Its goroutines: one supervises; while the command lives,
// one for each output, for its input, its signals and its end. The streams that
// carry it, see [link], have their own. Without Plugin.DurableRuns there is just one
// stream, and its end is the run's.
type run struct {
	server  *server
	start   *berthv1.RunStart
	id      string
	begun   time.Time
	durable bool

	stopper
	ctx     context.Context // ended by a stop
	stopped chan struct{}   // closed when nothing of the command is left, or given up

	links links

	window  *window
	out     *outbox
	stdin   *inbox
	signals chan *berthv1.RunSignal
	// delivering is held, by its one place, while a signal is delivered.
	delivering chan struct{}
	output     atomic.Int64 // bytes read, for the limit
	timer      *time.Timer  // nil without a timeout
}

// Run runs a command.
func (s *server) Run(stream runStream) error {
	if _, err := s.configured(); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("run: receiving the first message: %w", err)
	}
	start := first.GetStart()
	if start == nil {
		return fmt.Errorf("run: the first message is not start: %w", workspace.ErrInvalid)
	}
	r := s.newRun(start)
	cmd, err := r.command()
	if err != nil {
		return r.refuse(stream, err)
	}
	e, stream, err := s.acquireForRun(stream, start.GetWorkspace())
	switch {
	case err != nil && r.repeated():
		return err // what was sent before may be running
	case err != nil:
		return r.refuse(stream, err)
	case e.target != nil:
		defer s.cache.release(e)
		return s.relayRun(e, stream, start, r.begun)
	}
	cmd.Env = withEnviron(e.ws, cmd.Env)
	ctx := stream.Context()
	if r.durable {
		ctx = context.WithoutCancel(ctx)
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if r.repeated() {
		// What is wrong with it is the stream's error and not the run's: of the run
		// itself nothing is known.
		if err := s.runs.add(e.id, r); err != nil {
			r.cancel()
			s.cache.release(e)
			return err
		}
	}
	l := r.firstLink(stream)
	s.goSafely("run", func() { r.supervise(e, cmd) })
	return l.carry()
}

func (s *server) newRun(start *berthv1.RunStart) *run {
	r := &run{
		server: s, start: start, id: start.GetRunId(), begun: time.Now(), durable: s.def.durableRuns,
		stopper: stopper{stopCh: make(chan struct{})}, stopped: make(chan struct{}),
		window: newWindow(), out: newOutbox(), stdin: newInbox(), signals: make(chan *berthv1.RunSignal, maxSignals), delivering: make(chan struct{}, 1),
	}
	r.out.keeps = r.durable
	return r
}

// refuse answers a run that was not started.
func (r *run) refuse(stream runStream, err error) error {
	r.durable = false // there is nothing to keep
	r.fail(err)
	m, _ := r.out.next(nil)
	return stream.Send(m)
}

// supervise brings the run to its outcome, whatever the provider does.
func (r *run) supervise(e *entry, cmd Command) {
	defer close(r.stopped)
	defer r.cancel()
	defer r.server.cache.release(e)
	if err := r.server.safely("Run", func() error { r.execute(e, cmd); return nil }); err != nil {
		r.fail(err)
	}
}

// fail and exit are the two outcomes. The first one counts.
func (r *run) fail(err error) {
	r.finish(&berthv1.RunOutcome{Result: &berthv1.RunOutcome_Error{Error: r.server.redactor.detail(wire.ToDetail(err))}})
}

func (r *run) exit(code int) {
	if code < 0 || code > maxExitCode {
		r.fail(fmt.Errorf("run %s: the provider gave the exit code %d, which is none: the command's end is unknown", r.id, code))
		return
	}
	r.finish(&berthv1.RunOutcome{Result: &berthv1.RunOutcome_Exited{Exited: &berthv1.Exited{Code: int32(code)}}})
}

// maxExitCode is that of the systems with the widest ones.
const maxExitCode = 1<<31 - 1

func (r *run) finish(outcome *berthv1.RunOutcome) {
	outcome.StdoutEnd, outcome.StderrEnd = r.window.ends()
	if r.durable && !r.out.over() {
		r.keep() // before it can be taken
	}
	r.out.finish(outcome)
}

// execute starts the command and sees it through.
func (r *run) execute(e *entry, cmd Command) {
	commander, ok := e.ws.(Commander)
	switch {
	case !ok:
		r.fail(unsupported("run: this workspace runs no commands"))
		return
	case r.start.Script != nil && !e.features.Has(workspace.FeatureShell):
		r.fail(unsupported("run: this workspace has no shell for a script"))
		return
	case r.start.GetDetached() && !r.durable:
		r.fail(unsupported("run: detached"))
		return
	}
	cmd.Dir = e.workingDir
	if dir := string(r.start.GetDir()); dir != "" {
		cmd.Dir = absolute(e.workingDir, dir)
	}
	id := r.start.GetWorkspace().GetId()
	if !r.repeated() {
		if err := r.server.runs.add(id, r); err != nil {
			r.fail(err)
			return
		}
	}
	if !r.durable {
		defer r.server.runs.remove(id, r)
	}
	if timeout := time.Duration(r.start.GetTimeoutNs()); timeout > 0 {
		r.timer = time.AfterFunc(timeout, func() { r.stop(r.timedOut()) })
		defer r.timer.Stop()
	}
	process, err := r.startProcess(commander, cmd)
	if err != nil {
		if isUnavailable(err) {
			r.server.cache.forget(e)
		}
		r.fail(err)
		return
	}
	r.oversee(e, process)
}

// repeated reports whether the same start was sent before.
func (r *run) repeated() bool { return r.start.GetRepeatedAfterNs() > 0 }

func (r *run) timedOut() stopCause {
	full := time.Duration(cmp.Or(r.start.GetFullTimeoutNs(), r.start.GetTimeoutNs()))
	return stopCause{grace: workspace.StopGrace, err: func(survivors string) error {
		return &workspace.TimeoutError{Timeout: full, Survivors: survivors}
	}}
}

func (r *run) overLimit() stopCause {
	return stopCause{grace: workspace.StopGrace, err: func(survivors string) error {
		return &workspace.OutputLimitError{Limit: r.start.GetOutputLimit(), Survivors: survivors}
	}}
}

// command checks what was asked (contract C1) and puts it into a provider's
// words, but for the directory.
func (r *run) command() (Command, error) {
	start := r.start
	if !runIDPattern.MatchString(r.id) {
		return Command{}, fmt.Errorf("run: id %q: want 1 to 63 of a-z, 0-9 and -: %w", r.id, workspace.ErrInvalid)
	}
	env := wire.ToEnv(start.GetEnv())
	asked := workspace.Command{
		Args: wire.ToBytesList(start.GetArgs()), Script: string(start.GetScript()), Dir: string(start.GetDir()),
		Env: env, Timeout: time.Duration(start.GetTimeoutNs()),
	}
	if start.Script != nil && len(asked.Args) > 0 {
		return Command{}, fmt.Errorf("run: both args and a script: %w", workspace.ErrInvalid)
	}
	if err := asked.Validate(); err != nil {
		return Command{}, err
	}
	if start.GetFullTimeoutNs() < 0 || start.GetOutputLimit() < 0 || start.GetRepeatedAfterNs() < 0 {
		return Command{}, fmt.Errorf("run: a negative timeout, output limit or age: %w", workspace.ErrInvalid)
	}
	state, err := r.server.configured()
	if err != nil {
		return Command{}, err
	}
	cmd := Command{RunID: r.id, Args: asked.Args, Stdin: start.GetStdin(), Env: maps.Clone(state.env)}
	if start.Script != nil {
		cmd.Args = []string{"/bin/sh", "-c", asked.Script}
	}
	if cmd.Env == nil {
		cmd.Env = make(map[string]string, len(env))
	}
	maps.Copy(cmd.Env, env)
	return cmd, nil
}

// dirError puts the caller's Dir into an error about it.
func (r *run) dirError(abs string, err error) error {
	var pathErr *fs.PathError
	if dir := string(r.start.GetDir()); dir != "" && errors.As(err, &pathErr) && pathErr.Path == abs {
		return pathError(cmp.Or(pathErr.Op, "chdir"), dir, err)
	}
	return err
}

func isUnavailable(err error) bool { return errors.Is(err, workspace.ErrUnavailable) }
