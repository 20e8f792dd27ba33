package execpath

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

//go:embed run.sh
var runScript string

// process is a command under a shell of its own.
type process struct {
	ws    *Workspace
	run   string // its value of [runVariable]
	input bool
	exec  *engine.Exec
	out   *lane
	errs  *lane

	started chan struct{} // closed when it is told that it started, or why not
	done    chan struct{} // closed when code and err are set
	copied  chan struct{} // closed when the streams have ended
	closed  sync.Once
	starts  sync.Once
	forget  sync.Once

	mu       sync.Mutex
	shellPID int
	pid      int
	refused  string
	finished bool
	code     int
	err      error
}

var _ sdk.Process = (*process)(nil)

// Start starts a command (contract C1, C2, C3).
func (w *Workspace) Start(ctx context.Context, cmd sdk.Command) (sdk.Process, error) {
	if !w.shell {
		return nil, fmt.Errorf("starting the command: %w", errWithoutShell)
	}
	dir := cmd.Dir
	if dir == "" {
		dir = w.config.WorkingDir
	}
	header, err := w.header(cmd, dir)
	if err != nil {
		return nil, err
	}
	p := &process{ws: w, run: newName(), input: cmd.Stdin, started: make(chan struct{}), done: make(chan struct{}), copied: make(chan struct{})}
	word := newName()
	p.out = newLane(word, false, func(text string) bool { return text == "" || p.told(text) }) //nolint:contextcheck // what it forgets outlives the start
	p.errs = newLane(word, false, p.told)
	if err := w.keeper.add(ctx, p.run); err != nil {
		return nil, fmt.Errorf("starting the command: %w", err)
	}
	if err := p.start(ctx, "_b_mark="+word+";"+header+"\n"); err != nil {
		p.forgetRun() //nolint:contextcheck // it outlives the start
		return nil, err
	}
	if p.refused == "" {
		return p, nil
	}
	_ = p.Close()
	p.forgetRun() //nolint:contextcheck // it outlives the start
	switch p.refused {
	case toldBig:
		return nil, fmt.Errorf("starting the command: arguments and environment are larger than the system takes: %w: %w", syscall.E2BIG, workspace.ErrInvalid)
	default:
		return nil, w.dirError(ctx, dir)
	}
}

// header is the first line of the command's shell's input.
func (w *Workspace) header(cmd sdk.Command, dir string) (string, error) {
	env := newEnvironment(w.base, cmd.Env)
	args := cmd.Args
	if strings.HasPrefix(args[0], "-") && env.prefix == nil {
		env.prefix = []string{"env"} // exec would take it for an option
	}
	if env.prefix != nil {
		if strings.Contains(args[0], "=") {
			return "", fmt.Errorf("starting the command: a program with = in its name, together with variables that a shell cannot pass: %w", workspace.ErrInvalid)
		}
		if len(env.prefix) == 1 {
			env.prefix = append(env.prefix, "--")
		}
		args = append(env.prefix, args...)
	}
	size := env.size
	for _, arg := range args {
		size += len(arg) + perString
	}
	input := ""
	if cmd.Stdin {
		input = "1"
	}
	return setNewline + "_b_dir=" + quote(dir) + ";_b_size=" + strconv.Itoa(size) + ";_b_input=" + input +
		";environ(){ " + env.script + " };set --" + quoteAll(args), nil
}

// start brings it to where it has started or is refused.
func (p *process) start(ctx context.Context, header string) error {
	x, err := p.ws.exec(ctx, []string{"/bin/sh", "-c", runScript}, p.run)
	if err != nil {
		return fmt.Errorf("starting the command: %w", err)
	}
	p.exec = x
	p.ws.tasks.Go(p.copy)
	if _, err := io.WriteString(x, header); err != nil && ctx.Err() == nil {
		_ = x.Close()
		<-p.copied
		return p.ws.broken(ctx, "starting the command", err)
	}
	switch ended := p.begun(ctx); {
	case ended:
		_ = p.Close()
		if p.err == nil { // it was told to have ended, and never to have started
			return fmt.Errorf("starting the command: its shell could not start a process: %w: %w", syscall.EAGAIN, workspace.ErrTransient)
		}
		return fmt.Errorf("starting the command: %w", p.err)
	case p.isBegun():
		return nil
	}
	// The engine may be about to start it: until then there is nothing to stop.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), startWait)
	defer cancel()
	_ = p.begun(late)
	_ = p.Stop(0) //nolint:contextcheck // ctx has ended
	_ = p.Close()
	return fmt.Errorf("starting the command: %w", context.Cause(ctx))
}

// begun waits until it is told that the command started, or why not, and reports
// whether its streams have ended before that.
func (p *process) begun(ctx context.Context) (ended bool) {
	select {
	case <-p.started:
	case <-p.done:
		return !p.isBegun() // a short command has ended too by the time that this looks
	case <-ctx.Done():
	}
	return false
}

func (p *process) isBegun() bool {
	select {
	case <-p.started:
		return true
	default:
		return false
	}
}

// startWait is how long a command that is no longer wanted may take to start, so that
// it can be stopped.
const startWait = 10 * time.Second

// What a command's shell tells.
const (
	toldShell     = "shell"
	toldStarted   = "started"
	toldExited    = "exited"
	toldDirectory = "directory"
	toldBig       = "big"
)

// told hears the command's shell.
func (p *process) told(text string) (end bool) {
	what, number, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	p.mu.Lock()
	switch {
	case what == toldShell && err == nil:
		p.shellPID = n
	case what == toldStarted && err == nil:
		p.pid = n
	case what == toldDirectory, what == toldBig:
		p.refused = what
	}
	p.mu.Unlock()
	switch what {
	case toldStarted, toldDirectory, toldBig:
		p.starts.Do(func() { close(p.started) })
	case toldExited:
		if err != nil {
			p.finish(0, fmt.Errorf("the command's shell tells the exit code %.20q", number))
		} else {
			p.finish(n, nil)
		}
		p.forgetRun() // its background children go on
		return true
	}
	return false
}

// finish notes how the command ended. The first one counts.
func (p *process) finish(code int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished, p.code, p.err = true, code, err
	close(p.done)
}

// copy delivers the outputs until both are told to have ended, or break.
func (p *process) copy() {
	defer close(p.copied)
	stop := context.AfterFunc(p.ws.ending(), func() { _ = p.exec.Close() })
	defer stop()
	defer p.ws.wake(p.ws.alive, p.rouse)()
	err := p.exec.Copy(p.out, p.errs)
	p.out.finish()
	p.errs.finish()
	select {
	case <-p.done:
	default:
		p.finish(0, p.lost(err))
	}
}

// lostWait is how long may be asked why the stream of a command has ended.
const lostWait = 10 * time.Second

// lost says why the streams of a command ended without its exit code.
func (p *process) lost(err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ws.alive), lostWait)
	defer cancel()
	if p.ws.alive.Err() != nil {
		return errClosed
	}
	if gone := p.ws.available(ctx); gone != nil {
		return gone
	}
	if err != nil {
		return fmt.Errorf("the command's stream broke, and its end is unknown: %w", err)
	}
	code, err := p.exec.Wait(ctx)
	if gone := p.ws.goneSoon(ctx); gone != nil {
		return gone
	}
	if err != nil {
		return fmt.Errorf("the command's shell ended, and the command's end is unknown: %w", err)
	}
	select {
	case <-p.started:
		return fmt.Errorf("the command's shell ended with %d, and the command's end is unknown", code)
	default:
		// A shell that cannot fork ends at once.
		return fmt.Errorf("the command's shell ended with %d before it could start the command, perhaps at a limit of processes or memory: %w", code, workspace.ErrTransient)
	}
}

// forgetRun lets the keeper leave what the run left.
func (p *process) forgetRun() {
	p.forget.Do(func() {
		p.ws.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(p.ws.alive, stopAnswer)
			defer cancel()
			_ = p.ws.keeper.remove(ctx, p.run) // a keeper that is gone has nothing to forget
		})
	})
}

// dirError says why a directory cannot be entered (contract C2).
func (w *Workspace) dirError(ctx context.Context, dir string) error {
	const op = "chdir"
	info, err := w.files.Stat(ctx, dir)
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr):
		return &fs.PathError{Op: op, Path: dir, Err: pathErr.Err}
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: op, Path: dir, Err: syscall.ENOTDIR}
	}
	return &fs.PathError{Op: op, Path: dir, Err: syscall.EACCES}
}

// Stdin is nil unless asked for.
func (p *process) Stdin() io.WriteCloser {
	if !p.input {
		return nil
	}
	return stdin{p.exec}
}

type stdin struct{ exec *engine.Exec }

func (s stdin) Write(b []byte) (int, error) { return s.exec.Write(b) }

// Close is the end of the input.
func (s stdin) Close() error { return s.exec.CloseWrite() }

// Stdout ends when the command is done (contract C8).
func (p *process) Stdout() io.Reader { return p.out }

// Stderr ends when the command is done.
func (p *process) Stderr() io.Reader { return p.errs }

// Wait returns the exit code (contract C3).
func (p *process) Wait() (int, error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, p.err
}

// Signal sends to the direct process.
func (p *process) Signal(ctx context.Context, sig workspace.Signal) error {
	number, ok := signalNumber(sig)
	if !ok {
		return fmt.Errorf("signal %s is not known: %w", sig, workspace.ErrInvalid)
	}
	p.mu.Lock()
	pid, finished := p.pid, p.finished
	p.mu.Unlock()
	if finished {
		return os.ErrProcessDone
	}
	_, status, err := p.ws.keeper.ask(ctx, fmt.Sprintf("kill -%d %d 2>/dev/null", number, pid))
	if err != nil {
		return fmt.Errorf("sending signal %s: %w", sig, err)
	}
	if status == 0 {
		return nil
	}
	_, status, err = p.ws.keeper.ask(ctx, fmt.Sprintf("[ -d /proc/%d ]", pid))
	switch {
	case err != nil:
		return fmt.Errorf("sending signal %s: %w", sig, err)
	case status != 0:
		return os.ErrProcessDone
	}
	return fmt.Errorf("sending signal %s: %w", sig, syscall.EPERM)
}

// Close releases the streams. What the command left goes on, and what that writes
// is drained by the engine.
func (p *process) Close() error {
	p.closed.Do(func() {
		p.out.discard()
		p.errs.discard()
		if p.exec != nil {
			_ = p.exec.Close()
		}
	})
	return nil
}
