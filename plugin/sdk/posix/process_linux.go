package posix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// stopMargin is how much longer than its work may take a supervisor has to say
// that a tree is stopped, before it is taken for hung and killed itself.
const stopMargin = time.Second

// commands is the part of a workspace that runs commands.
type commands struct{ once sync.Once }

func (*commands) open()    { supervisors.retain() }
func (c *commands) close() { c.once.Do(supervisors.release) }

// process is a command under a supervisor.
type process struct {
	streams
	helper *helper
	ws     *Workspace
	answer chan message  // to its start
	done   chan struct{} // closed when it has ended, by finish
	closed sync.Once

	mu        sync.Mutex
	finished  bool
	code      int
	err       error
	killed    bool // the supervisor was
	held      int64
	released  bool
	stops     []chan string
	survivors string
}

var _ sdk.Process = (*process)(nil)

// Start starts a command (contract C1, C2, C3).
func (w *Workspace) Start(ctx context.Context, cmd sdk.Command) (sdk.Process, error) {
	if !mainCalled.Load() {
		return nil, errors.New("starting the command: this program does not call posix.Main, which must be the first line of main, and of TestMain")
	}
	if err := ctx.Err(); err != nil {
		return nil, startCancelled(ctx)
	}
	if err := w.available(); err != nil {
		return nil, err
	}
	supervisors.retain()
	p, err := w.start(ctx, cmd)
	if err != nil {
		supervisors.release()
		if gone := w.available(); errors.Is(gone, workspace.ErrUnavailable) {
			return nil, gone
		}
		return nil, err
	}
	return p, nil
}

// tries is how often a start is made when a supervisor is found dead before it
// was given the command. After that it is never made again.
const tries = 3

func (w *Workspace) start(ctx context.Context, cmd sdk.Command) (*process, error) {
	for try := 1; ; try++ {
		p, delivered, err := w.tryStart(ctx, cmd)
		if err == nil || delivered || try == tries {
			return p, err
		}
	}
}

func (w *Workspace) tryStart(ctx context.Context, cmd sdk.Command) (p *process, delivered bool, err error) {
	helper, err := supervisors.get()
	if err != nil {
		return nil, true, err
	}
	p = &process{helper: helper, ws: w, answer: make(chan message, 1), done: make(chan struct{})}
	m := message{kind: kindStart, text: w.dirOf(cmd), args: cmd.Args, env: w.environment(cmd.Env)}
	theirs, err := p.pipes(cmd.Stdin, &m)
	if err != nil {
		p.abandon()
		supervisors.put(helper)
		return nil, true, refusal("", "pipe", errnoOf(err))
	}
	delivered, err = helper.give(p, m)
	closeAll(theirs)
	if err != nil {
		p.abandon()
		helper.hangUp()
		return nil, delivered, fmt.Errorf("starting the command: handing it to its supervisor: %w: %w", err, workspace.ErrTransient)
	}
	var answer message
	select {
	case answer = <-p.answer:
	case <-helper.done:
		select {
		case answer = <-p.answer: // it came before: the command has ended already
		default:
			p.abandon()
			if !helper.isReady() {
				return nil, false, notStarted("its supervisor")
			}
			return nil, true, errors.New("starting the command: its supervisor was killed, and whether it ran is unknown")
		}
	case <-ctx.Done():
		if p.cancelled() {
			<-helper.done
			p.abandon()
			return nil, true, startCancelled(ctx)
		}
		answer = <-p.answer // it came before
	}
	if answer.kind != kindStarted {
		p.abandon()
		return nil, true, refusal(cmp.Or(cmd.Dir, w.dir), answer.text, syscall.Errno(answer.num))
	}
	return p, true, nil
}

// cancelled makes the supervisor stop what it has started, by hanging up, unless
// the command has ended already: then it may run another one.
func (p *process) cancelled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return false
	}
	p.helper.hangUp()
	return true
}

// pipes makes the command's pipes, puts the descriptors that the supervisor is
// to have into m, and returns those that are ours only to hand over.
func (p *process) pipes(stdin bool, m *message) (theirs []int, err error) {
	defer func() {
		if err != nil {
			closeAll(theirs)
		}
	}()
	var fd int
	if stdin {
		if p.stdin, fd, err = pipe(writeEnd); err != nil {
			return theirs, err
		}
		m.num = 1
		theirs = append(theirs, fd)
	}
	if p.stdout, fd, err = newOutput(); err != nil {
		return theirs, err
	}
	theirs = append(theirs, fd)
	if p.stderr, fd, err = newOutput(); err != nil {
		return theirs, err
	}
	theirs = append(theirs, fd)
	m.fds = append(m.fds, theirs...)
	for _, o := range []*output{p.stdout, p.stderr} {
		// The number stays right as long as the file is open, until the send.
		if err := o.raw.Control(func(fd uintptr) { m.fds = append(m.fds, int(fd)) }); err != nil {
			return theirs, err
		}
	}
	return theirs, nil
}

// Wait returns the exit code (contract C3).
func (p *process) Wait() (int, error) {
	<-p.done
	if err := p.ws.available(); errors.Is(err, workspace.ErrUnavailable) {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, p.err
}

// finish notes how the command has ended. What its pipes hold now is its output.
func (p *process) finish(code int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished, p.code, p.err = true, code, err
	if p.stdout.end() {
		p.held |= heldStdout
	}
	if p.stderr.end() {
		p.held |= heldStderr
	}
	if p.stdin != nil {
		_ = p.stdin.Close() // wakes a writer whom nobody reads
	}
	close(p.done)
}

// releaseWhenDone gives the supervisor back when the command has ended and is
// not being stopped.
func (p *process) releaseWhenDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished && len(p.stops) == 0 && !p.released {
		p.released = true
		_ = p.helper.send(message{kind: kindRelease, num: p.held})
	}
}

// stopped answers every Stop: the supervisor tells once that the tree is stopped,
// however often it was asked.
func (p *process) stopped(survivors string) {
	if survivors != "" { // the command itself may be among them
		p.finish(0, errors.New("the command could not be stopped: "+survivors))
	}
	p.mu.Lock()
	p.survivors = survivors
	for _, stop := range p.stops {
		stop <- survivors
	}
	p.stops = nil
	p.mu.Unlock()
	p.releaseWhenDone()
}

// lost ends the process when its supervisor has gone, unless it had ended.
func (p *process) lost() {
	p.mu.Lock()
	if !p.finished || len(p.stops) > 0 {
		p.killed = true
	}
	p.mu.Unlock()
	p.finish(0, errors.New("the command's supervisor was killed: how the command ended is unknown"))
}

// Signal sends to the direct process.
func (p *process) Signal(ctx context.Context, sig workspace.Signal) error {
	number := unix.SignalNum("SIG" + string(sig))
	if number == 0 {
		return fmt.Errorf("signal %q is not known: %w", string(sig), workspace.ErrInvalid)
	}
	p.mu.Lock()
	if p.finished {
		p.mu.Unlock()
		return os.ErrProcessDone
	}
	// Under the lock it goes before the release: never to the next command.
	answer := p.helper.expectSignal()
	err := p.helper.send(message{kind: kindSignal, num: int64(number)})
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("sending signal %s: %w", sig, err)
	}
	select {
	case errno, ok := <-answer:
		switch {
		case !ok || errno == unix.ESRCH:
			return os.ErrProcessDone
		case errno != 0:
			return fmt.Errorf("sending signal %s: %w", sig, errno)
		}
		return nil
	case <-p.helper.done:
		return os.ErrProcessDone
	case <-ctx.Done():
		return fmt.Errorf("sending signal %s: %w", sig, ctx.Err())
	}
}

// Stop ends the whole tree (contract C5). After the command's end it does
// nothing: background children go on then (contract C8).
func (p *process) Stop(grace time.Duration) (survivors string) {
	p.mu.Lock()
	if p.finished && len(p.stops) == 0 {
		killed, survivors := p.killed, p.survivors
		p.mu.Unlock()
		if killed {
			return p.helper.sweep()
		}
		return survivors
	}
	answer := make(chan string, 1)
	p.stops = append(p.stops, answer)
	_ = p.helper.send(message{kind: kindStop, num: int64(grace)}) // a dead one is seen below
	p.mu.Unlock()

	hung := time.NewTimer(max(grace, 0) + killWait + stopMargin)
	defer hung.Stop()
	for {
		select {
		case survivors := <-answer:
			return survivors
		case <-p.helper.done:
			select {
			case survivors := <-answer: // it came before
				return survivors
			default:
				return p.helper.sweep()
			}
		case <-hung.C:
			p.helper.kill()
		}
	}
}

// Close gives up the output that was not read, and stops a command that still
// runs. Background children of one that has ended go on.
func (p *process) Close() error {
	p.closed.Do(func() {
		select {
		case <-p.done:
		default:
			p.Stop(0)
			<-p.done
		}
		p.abandon()
		supervisors.release()
	})
	return nil
}
