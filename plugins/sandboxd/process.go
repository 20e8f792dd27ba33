package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// firstLook is when a command that has not ended is looked after for the first time:
	// most end before, in one round trip.
	firstLook = 500 * time.Millisecond
	// nextLook lies between two looks that bring output: each costs the service an exec.
	nextLook = 100 * time.Millisecond
	// lookRounds is how many tenths of a second a look waits for output in the container.
	// The script there stops a command that nobody has looked after for ten seconds.
	lookRounds = 30
	// leaseTime is how long a command goes on there that nobody looks after.
	leaseTime = 10 * time.Second
	// lookTime is what those rounds take on a loaded machine.
	lookTime = 10 * time.Second
	// leasePause lies between two looks that bring nothing, since nobody reads.
	leasePause = 2 * time.Second
	// stopAnswer is what the answer to a stop may take beyond the stop itself, which the
	// SDK waits for no longer.
	stopAnswer = 2500 * time.Millisecond
	// stopWay is what the way of a stop into the container takes of its grace: KILL
	// follows at most so long after TERM (contract C5).
	stopWay = 300 * time.Millisecond
)

var errSilent = fmt.Errorf("the service has not answered for longer than a command goes on that nobody looks after: %w", workspace.ErrTransient)

// errUnwatched is that of a command whose container stopped it while its request was
// still under way.
var errUnwatched = fmt.Errorf("it was stopped in its container, where nobody had looked after it for %v: %w", leaseTime, workspace.ErrTransient)

// process is one command.
type process struct {
	session *session
	cmd     sdk.Command
	name    string // by which its processes and its folder are found

	mu     sync.Mutex
	folder string // where its streams are, in the container; see where
	change sync.Cond
	out    *stream
	errs   *stream
	stdin  *stdin // nil without one

	// ctx ends with Close, and with it everything here.
	ctx  context.Context
	end  context.CancelFunc
	done chan struct{} // closed when code and err are set
	code int
	err  error

	stopping sync.Mutex // one stop after the other
	early    bool       // a stop came before the command, or after it
	runID    string     // of the request that is under way; guarded by mu
	stopped  bool       // guarded by mu
	exited   bool       // the direct process has; guarded by mu
}

func newProcess(s *session, cmd sdk.Command) *process {
	name := newID()
	p := &process{session: s, cmd: cmd, name: name, folder: folder(s.facts().tmp, name), done: make(chan struct{})}
	p.change.L = &p.mu
	mark := "\x1e\nberth-end-" + name // a line of its own, for a grep that stops at NUL
	p.out, p.errs = newStream("o", mark, &p.change), newStream("e", mark, &p.change)
	if cmd.Stdin {
		p.stdin = newStdin(s.facts().maxPiece())
	}
	p.ctx, p.end = context.WithCancel(s.alive)
	return p
}

// folder is where a command's streams are.
func folder(tmp, name string) string { return strings.TrimSuffix(tmp, "/") + "/.berth-run-" + name }

// where is its folder.
func (p *process) where() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.folder
}

// Stdin is nil unless asked for.
func (p *process) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

// Stdout ends when the command is done.
func (p *process) Stdout() io.Reader { return p.out }

// Stderr does too.
func (p *process) Stderr() io.Reader { return p.errs }

// Wait returns when the service has answered, or is known not to.
func (p *process) Wait() (int, error) {
	<-p.done
	return p.code, p.err
}

// Close gives up what is held here. A command that still runs is stopped.
func (p *process) Close() error {
	p.end()
	return nil
}

// run sends the command and looks after it until the answer.
func (p *process) run() {
	defer p.end()
	var first []byte
	whole := false
	if p.stdin != nil && p.leavesRoom() {
		first, whole = p.stdin.first(p.ctx)
	}
	held, ran, err := p.send(first, whole)
	if err == nil && (p.stdin == nil || whole) && p.refused(ran) && p.moves(held) {
		held, ran, err = p.send(first, whole) // the first one has not begun
	}
	code, err := p.conclude(held, ran, err)
	p.mu.Lock()
	p.code, p.err = code, err
	p.out.end()
	p.errs.end()
	p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.shut()
	}
	close(p.done)
}

// send makes the request for the command, and looks after it until that is answered.
func (p *process) send(first []byte, whole bool) (held *access, ran *runAnswer, err error) {
	over, end := context.WithCancel(p.ctx)
	var helpers sync.WaitGroup
	asked, giveUp := context.WithCancelCause(p.ctx)
	defer giveUp(nil)
	helpers.Go(func() { p.follow(over, giveUp) })
	if p.stdin != nil && !whole {
		helpers.Go(func() { p.feed(over) })
	}
	err = p.session.call(asked, func(a *access) (err error) {
		held = a
		earlier := p.session.kept.take()
		r := p.request(first, whole, earlier)
		p.mu.Lock()
		p.runID = r.id
		p.mu.Unlock()
		if ran, err = p.session.post(asked, a, r); err != nil {
			p.session.arrived(earlier...) // they may be there still
		}
		return err
	})
	end()
	helpers.Wait()
	return held, ran, err
}

// take hands the output of an answer on.
func (p *process) take(t told) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range t.parts {
		s := p.out
		if part.letter == p.errs.letter {
			s = p.errs
		}
		if err := s.take(part.segment, part.offset, part.data); err != nil {
			return fmt.Errorf("%w (%w)", errScript, err)
		}
	}
	return nil
}

// control runs a script that looks after the command, again if its answer is lost: all
// of them may come twice, but a signal.
func (p *process) control(ctx context.Context, timeout time.Duration, r run) (told, error) {
	end, err := p.ask(ctx, timeout, r, tries)
	return end.told, err
}

// ask runs such a script at most so often.
func (p *process) ask(ctx context.Context, timeout time.Duration, r run, times int) (e ending, err error) {
	r.timeout = timeout
	held := p.session.access.Load()
	for range times {
		var ran *runAnswer
		if ran, err = p.session.post(ctx, held, r); err == nil {
			e.stderr = *ran.Stderr
			e.told, err = p.session.facts().parse(*ran.Stdout)
			if err == nil && e.word == "" {
				err = ended(ran)
			}
		}
		if !loses(err) {
			break
		}
	}
	return e, err
}

// positions are how far each stream was received, for a script.
func (p *process) positions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []string{
		strconv.Itoa(p.out.segment), strconv.FormatInt(p.out.offset, 10),
		strconv.Itoa(p.errs.segment), strconv.FormatInt(p.errs.offset, 10),
	}
}

// follow brings the output of a command while it runs, for as long as somebody reads,
// and tells the container that somebody is there (contract B3). When it cannot tell that
// for so long that the command was stopped there, the request is given up too.
func (p *process) follow(ctx context.Context, giveUp context.CancelCauseFunc) {
	answered := time.Now()
	var err error
	for pause := firstLook; sleep(ctx, pause) == nil; {
		switch {
		case !errors.Is(err, workspace.ErrTransient):
			answered = time.Now()
		case time.Since(answered) > leaseTime+p.session.client.timeout:
			giveUp(errSilent)
			return
		}
		if p.unread() {
			var t told
			t, err = p.control(ctx, p.session.client.timeout, p.session.facts().control("lease", p.where()))
			p.note(ctx, "renewing a command's lease", err)
			p.heard(t)
			pause = p.untilRead(ctx, leasePause)
			continue
		}
		args := append([]string{"exchange", p.where()}, p.positions()...)
		var t told
		t, err = p.control(ctx, lookTime+p.session.client.timeout, p.session.facts().control(append(args, strconv.Itoa(lookRounds))...))
		if err == nil {
			err = p.take(t)
		}
		p.note(ctx, "looking after a command", err)
		p.heard(t)
		pause = nextLook
		if err != nil || len(t.parts) == 0 {
			pause = firstLook
		}
	}
}

// note logs what went wrong on the way: the next look may succeed, and the command's
// own request tells its end.
func (p *process) note(ctx context.Context, doing string, err error) {
	if err != nil && ctx.Err() == nil {
		p.session.provider.logger.Debug(doing, "session", p.session.id, "run", p.cmd.RunID, "error", err)
	}
}

// heard notes that the direct process has ended.
func (p *process) heard(t told) {
	if t.word == "exited" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exited = true
		p.change.Broadcast()
	}
}

// unread reports whether the command has to wait until its output is read: not one
// that has ended, or is to, whose last output is bounded.
func (p *process) unread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits()
}

// waits is unread with the lock held.
func (p *process) waits() bool {
	return !p.stopped && !p.exited && (len(p.out.data) > 0 || len(p.errs.data) > 0)
}

// untilRead waits until all output was read, at most so long, and returns how long to
// wait then.
func (p *process) untilRead(ctx context.Context, most time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.change.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ctx.Err() == nil && p.waits() {
		p.change.Wait()
	}
	return 0
}

// Signal sends to the direct process.
func (p *process) Signal(ctx context.Context, sig workspace.Signal) error {
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
	}
	t, err := p.ask(ctx, p.session.client.timeout, p.session.facts().control("signal", p.where(), string(sig)), 1)
	switch {
	case err != nil:
		return err
	case t.word == "gone":
		return os.ErrProcessDone
	case t.word != "sent":
		return fmt.Errorf("the container's kill refuses the signal %s: %w", sig, workspace.ErrInvalid)
	}
	return nil
}

// Stop ends the command's whole tree (contract C5). What the command wrote until then
// comes with the answer to its request.
func (p *process) Stop(grace time.Duration) (survivors string) {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	select {
	case <-p.done:
		return ""
	default:
	}
	p.mu.Lock()
	p.stopped = true
	p.change.Broadcast()
	p.mu.Unlock()
	hundredths := strconv.Itoa(int(max(grace-stopWay, 0) / (10 * time.Millisecond)))
	t, err := p.control(context.WithoutCancel(p.ctx), grace+stopAnswer, p.session.facts().control("stop", p.where(), p.name, hundredths))
	if err != nil {
		select {
		case <-p.done: // it came to its end meanwhile, or its session did
			return ""
		default:
		}
		if errors.Is(err, workspace.ErrUnavailable) {
			return ""
		}
		p.session.abandon(p.sent()) // the service stops what it knows of
		p.end()                     // its request is given up, and what is left is cleaned up
		return err.Error()
	}
	if _, ok := t.says("early"); ok {
		p.mu.Lock()
		p.early = true
		p.mu.Unlock()
	}
	return t.left()
}

// left tells the processes that a stop could not end.
func (t told) left() string {
	var all []string
	for _, remark := range t.remarks {
		if rest, ok := strings.CutPrefix(remark, "left "); ok {
			pid, name, _ := strings.Cut(rest, " ")
			all = append(all, fmt.Sprintf("%s (pid %s in the container)", short(name), short(pid)))
		}
	}
	return strings.Join(all, ", ")
}

// sent is the service's name of the run.
func (p *process) sent() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runID
}

func (p *process) wasStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

func (p *process) wasEarly() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.early
}
