package hosttest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// Start starts a scripted command.
func (w *fakeWorkspace) Start(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
	if err := cmd.Validate(); err != nil {
		return nil, err
	}
	if _, err := w.open(ctx); err != nil {
		return nil, err
	}
	cmd.Args, cmd.Env = append([]string(nil), cmd.Args...), maps.Clone(cmd.Env)
	id, reply := w.fake.begin(cmd)
	c := &command{
		cmd: cmd, reply: reply, started: time.Now(),
		signalled: make(chan workspace.Signal, 1), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	p := &process{id: id, command: c, done: make(chan struct{})}
	w.fake.keep(w, id, c)
	go func() {
		c.run(ctx, id)
		if !cmd.Detached {
			w.fake.forget(w, id)
		}
	}()
	go func() {
		if !p.follow(ctx, cmd.Stdout, cmd.Stderr, [2]int64{}, false) {
			w.fake.stop(c)
		}
	}()
	return p, nil
}

// command is a scripted one, whoever follows it.
type command struct {
	cmd       workspace.Command
	reply     Reply
	started   time.Time
	signalled chan workspace.Signal
	stopped   chan struct{} // closed, under the fake's mutex, by StopRun
	done      chan struct{}
	code      int
	err       error
}

func (c *command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// run comes to the command's end. The context is that of its start.
func (c *command) run(ctx context.Context, id string) {
	defer close(c.done)
	c.code, c.err = c.reply.ExitCode, c.reply.Err
	if !c.reply.Hang {
		return
	}
	var timeout <-chan time.Time
	if c.cmd.Timeout > 0 {
		timer := time.NewTimer(c.cmd.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		c.err = fmt.Errorf("run %s: %w", id, ctx.Err())
	case <-c.stopped:
		c.err = fmt.Errorf("run %s: command stopped: %w", id, context.Canceled)
	case <-timeout:
		c.err = fmt.Errorf("run %s: %w", id, &workspace.TimeoutError{Timeout: c.cmd.Timeout, Stdout: []byte(c.reply.Stdout), Stderr: []byte(c.reply.Stderr)})
	case sig := <-c.signalled:
		c.code = 128 + numbers()[sig]
	}
}

// process is a command as one caller follows it.
type process struct {
	id      string
	command *command
	done    chan struct{}
	result  *workspace.Result
	err     error
}

// follow delivers what the command writes, from offsets on, and its end. One that
// is attached is let go of at the end of its context. It reports whether all could
// be delivered.
func (p *process) follow(ctx context.Context, stdout, stderr io.Writer, offsets [2]int64, attached bool) bool {
	defer close(p.done)
	c := p.command
	var collected [2][]byte
	for i, out := range []struct {
		text string
		w    io.Writer
	}{{c.reply.Stdout, stdout}, {c.reply.Stderr, stderr}} {
		text := out.text[min(offsets[i], int64(len(out.text))):]
		if out.w == nil {
			collected[i] = []byte(text)
			continue
		}
		if _, err := io.WriteString(out.w, text); err != nil {
			p.err = fmt.Errorf("run %s: writing its output: %w", p.id, err)
			return false
		}
	}
	var left <-chan struct{}
	if attached {
		left = ctx.Done()
	}
	select {
	case <-c.done:
	case <-left:
		p.err = fmt.Errorf("attach run %s: %w", p.id, ctx.Err())
		return true
	}
	if p.err = c.err; p.err == nil {
		p.result = &workspace.Result{RunID: p.id, ExitCode: c.code, Stdout: collected[0], Stderr: collected[1]}
	}
	return true
}

// numbers are those of the signals that every provider delivers.
func numbers() map[workspace.Signal]int {
	return map[workspace.Signal]int{
		workspace.SignalHangup: 1, workspace.SignalInterrupt: 2, workspace.SignalQuit: 3, workspace.SignalKill: 9,
		workspace.SignalUser1: 10, workspace.SignalUser2: 12, workspace.SignalTerminate: 15,
	}
}

// ID is part of [workspace.Process].
func (p *process) ID() string { return p.id }

// Signal is part of [workspace.Process].
func (p *process) Signal(_ context.Context, sig workspace.Signal) error {
	if numbers()[sig] == 0 {
		return fmt.Errorf("signal %q: %w", sig, workspace.ErrInvalid)
	}
	if p.command.ended() {
		return os.ErrProcessDone
	}
	select {
	case p.command.signalled <- sig:
	default: // one is enough to end it
	}
	return nil
}

// Wait is part of [workspace.Process].
func (p *process) Wait() (*workspace.Result, error) {
	<-p.done
	return p.result, p.err
}
