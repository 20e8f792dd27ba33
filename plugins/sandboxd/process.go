package sandboxd

import (
	"context"
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
	// finishTimeout bounds the clean-up after a command whose request broke.
	finishTimeout = 10 * time.Second
)

// process is one command.
type process struct {
	session *session
	cmd     sdk.Command
	name    string // by which its processes and its folder are found
	folder  string // where its streams are, in the container

	mu     sync.Mutex
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
	p := &process{session: s, cmd: cmd, name: name, folder: strings.TrimSuffix(s.facts.tmp, "/") + "/.berth-run-" + name, done: make(chan struct{})}
	p.change.L = &p.mu
	mark := "\x1e\nberth-end-" + name // a line of its own, for a grep that stops at NUL
	p.out, p.errs = newStream("o", mark, &p.change), newStream("e", mark, &p.change)
	if cmd.Stdin {
		p.stdin = newStdin(s.facts.maxPiece())
	}
	p.ctx, p.end = context.WithCancel(s.alive)
	return p
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
	over, end := context.WithCancel(p.ctx)
	var helpers sync.WaitGroup
	var ran *runAnswer
	var held *access
	helpers.Go(func() { p.follow(over) })
	if p.stdin != nil && !whole {
		helpers.Go(func() { p.feed(over) })
	}
	err := p.session.call(p.ctx, func(a *access) (err error) {
		held = a
		earlier := p.session.kept.take()
		r := p.request(first, whole, earlier)
		p.mu.Lock()
		p.runID = r.id
		p.mu.Unlock()
		if ran, err = p.session.post(p.ctx, a, r); err != nil {
			p.session.arrived(earlier...) // they may be there still
		}
		return err
	})
	end()
	helpers.Wait()
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

// conclude is what the answer means.
func (p *process) conclude(held *access, ran *runAnswer, err error) (int, error) {
	if err != nil {
		if errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, workspace.ErrInvalid) {
			return 0, err
		}
		// Whether it runs is not known: it does not any more, unless it had ended.
		if end := p.finish(); end.known() && p.ctx.Err() == nil {
			return p.outcome(end)
		}
		if p.ctx.Err() == nil {
			err = fmt.Errorf("its end is not known, and it was stopped: %w", err)
		}
		return 0, err
	}
	end := ending{stderr: *ran.Stderr}
	if end.told, err = p.session.facts.parse(*ran.Stdout); err == nil {
		err = p.take(end.told)
	}
	switch {
	case err != nil:
		p.finish()
		return 0, err
	case ran.TimedOut:
		end = p.finish()
		return 0, &workspace.TimeoutError{Timeout: held.ceiling(), Ceiling: true, Survivors: end.left()}
	case end.known():
		p.session.arrived(p.name)
		return p.outcome(end)
	}
	if _, ok := end.says("folder"); ok {
		if p.wasStopped() {
			return 0, errors.New("it was stopped before it began")
		}
		return 0, fmt.Errorf("making a folder for the command's output in the container: %s", short(end.stderr))
	}
	if ran.ExitCode != nil && (*ran.ExitCode == workspace.ExitNotFound || *ran.ExitCode == workspace.ExitNotExecutable) {
		return 0, fmt.Errorf("the session has no sh: %s: %w", short(*ran.Stderr), errors.ErrUnsupported)
	}
	err = ended(ran)
	end = p.finish()
	if errors.Is(err, errLost) && end.known() {
		p.session.provider.logger.Debug("asked again for the result of a command", "session", p.session.id, "run", p.cmd.RunID)
		return p.outcome(end)
	}
	return 0, err
}

// ending is what a run has come to.
type ending struct {
	told
	stderr string // of the script that tells it
}

// known reports whether the command has ended by itself, or could not begin.
func (e ending) known() bool {
	if _, ok := e.says("dir"); ok {
		return true
	}
	_, err := strconv.Atoi(e.word)
	return err == nil
}

// outcome is what Wait returns of an ending that is known.
func (p *process) outcome(e ending) (int, error) {
	if rest, ok := e.says("dir"); ok {
		return 0, &fs.PathError{Op: "chdir", Path: p.cmd.Dir, Err: dirError(rest)}
	}
	code, err := strconv.Atoi(e.word)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", errScript, err)
	}
	if _, ok := e.says("lost"); ok {
		return 0, fmt.Errorf("keeping the command's output in the container, which ended with exit code %d: %s", code, short(e.stderr))
	}
	if p.wasEarly() {
		p.finish() // the stop found nothing, and left its word
	}
	return code, nil
}

// ended is a script of ours that has not said its last word.
func ended(ran *runAnswer) error {
	text := strings.ToLower(*ran.Stderr)
	if strings.Contains(text, "cannot fork") || strings.Contains(text, "can't fork") {
		return fmt.Errorf("the session's limit of processes is reached: %s: %w", short(*ran.Stderr), workspace.ErrTransient)
	}
	if ran.lost() {
		return errLost
	}
	return fmt.Errorf("a script of ours in the session was ended: %s: %s", ran.ended(), short(*ran.Stderr))
}

// dirError is why a command cannot start in its directory, in the words of ls.
func dirError(text string) error {
	lower := strings.ToLower(text)
	for _, known := range []struct {
		text string
		err  error
	}{
		{"not a directory", syscall.ENOTDIR},
		{"no such file or directory", fs.ErrNotExist},
		{"too many levels of symbolic links", syscall.ELOOP},
		{"symbolic link loop", syscall.ELOOP},
		{"file name too long", syscall.ENAMETOOLONG},
	} {
		if strings.HasSuffix(lower, known.text) {
			return known.err
		}
	}
	return fs.ErrPermission // ls may look at it, and nobody may enter
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
			e.told, err = p.session.facts.parse(*ran.Stdout)
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
// and tells the container that somebody is there (contract B3).
func (p *process) follow(ctx context.Context) {
	for pause := firstLook; sleep(ctx, pause) == nil; {
		if p.unread() {
			t, err := p.control(ctx, p.session.client.timeout, p.session.facts.control("lease", p.folder))
			p.note(ctx, "renewing a command's lease", err)
			p.heard(t)
			pause = p.untilRead(ctx, leasePause)
			continue
		}
		args := append([]string{"exchange", p.folder}, p.positions()...)
		t, err := p.control(ctx, lookTime+p.session.client.timeout, p.session.facts.control(append(args, strconv.Itoa(lookRounds))...))
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
	t, err := p.ask(ctx, p.session.client.timeout, p.session.facts.control("signal", p.folder, string(sig)), 1)
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
	t, err := p.control(context.WithoutCancel(p.ctx), grace+stopAnswer, p.session.facts.control("stop", p.folder, p.name, hundredths))
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

// finish brings the result of a command whose request did not tell it, if it has ended
// by itself; else it stops what is left of it, brings its last output, and removes its
// folder. What it cannot do, the container's own watch does ten seconds later.
func (p *process) finish() ending {
	ctx := context.WithoutCancel(p.ctx)
	args := append([]string{"finish", p.folder, p.name}, p.positions()...)
	end, err := p.ask(ctx, finishTimeout, p.session.facts.control(args...), tries)
	if err == nil {
		err = p.take(end.told)
	}
	if err != nil && !errors.Is(err, workspace.ErrUnavailable) {
		p.note(ctx, "cleaning up after a command", err)
		p.session.abandon(p.sent())
		end.word = "" // what it tells is not whole
	}
	if end.known() {
		p.session.arrived(p.name)
	}
	return end
}
