package posix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// maxIdle is how many supervisors wait for the next command: 2 MB of their own
	// each, beside what they share as the same binary, against the milliseconds
	// that starting one takes.
	maxIdle = 3
	// helperTimeout is for an answer of a helper that needs only the processor.
	// It is long: a machine may be busy, and nothing else can be done then.
	helperTimeout = 30 * time.Second
)

// pool holds the supervisors of this process. It is empty and nothing runs
// while no workspace is open.
type pool struct {
	mu     sync.Mutex
	users  int // open workspaces, and commands that are not closed
	all    map[*helper]struct{}
	idle   []*helper
	keeper *keeperConn
}

// supervisors is one for the process, whatever the number of its workspaces,
// as its children are the process's too.
var supervisors pool

func (p *pool) retain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

// release ends all helpers when their last user goes, and waits for them. Those
// that stay with background children go their own way.
func (p *pool) release() {
	p.mu.Lock()
	p.users--
	if p.users > 0 {
		p.mu.Unlock()
		return
	}
	all, keeper := p.all, p.keeper
	p.all, p.idle, p.keeper = nil, nil, nil
	p.mu.Unlock()
	for h := range all {
		h.hangUp()
		<-h.done
	}
	if keeper != nil {
		keeper.leave()
	}
}

// get returns a supervisor for one command.
func (p *pool) get() (*helper, error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		h := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if h.conn.alive() {
			p.mu.Unlock()
			return h, nil
		}
	}
	p.mu.Unlock()
	return p.spawn()
}

// put takes a supervisor back, or lets it go.
func (p *pool) put(h *helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ours := p.all[h]; ours && len(p.idle) < maxIdle {
		p.idle = append(p.idle, h)
		return
	}
	h.hangUp()
}

func (p *pool) forget(h *helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, h)
	for i, other := range p.idle {
		if other == h {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return
		}
	}
}

// spawn starts a supervisor, and a keeper if there is none or it was killed.
func (p *pool) spawn() (*helper, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, refusal("", "start", errnoOf(err))
	}
	defer theirs.Close()
	const tries = 2 // a keeper may be found dead once
	var pid int
	for range tries {
		var k *keeperConn
		if k, err = p.theKeeper(); err != nil {
			break
		}
		if pid, err = k.spawn(theirs); err == nil || !k.gone() {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, ours.close())
	}
	h := &helper{conn: ours, pool: p, pid: pid, done: make(chan struct{})}
	p.mu.Lock()
	if p.all == nil {
		p.all = make(map[*helper]struct{})
	}
	p.all[h] = struct{}{}
	p.mu.Unlock()
	go h.listen()
	return h, nil
}

func (p *pool) theKeeper() (*keeperConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeper != nil && !p.keeper.gone() {
		return p.keeper, nil
	}
	k, err := startKeeper()
	if err == nil {
		p.keeper = k
	}
	return k, err
}

// sweep stops what a killed supervisor has left, and tells what could not be.
func (p *pool) sweep(supervisor int) string {
	k, err := p.theKeeper()
	if err == nil {
		var answer message
		if answer, err = k.ask(message{kind: kindSweep, num: int64(supervisor)}, kindSwept); err == nil {
			return answer.text
		}
	}
	return "unknown: the supervisor was killed, and stopping what it left: " + err.Error()
}

// keeperConn is this process's side of a keeper.
type keeperConn struct {
	mu   sync.Mutex // one question at a time
	conn *conn
	pid  int
	done chan struct{} // the process has ended
}

func startKeeper() (*keeperConn, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the commands' keeper: %w", err)
	}
	defer null.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, refusal("", "start", errnoOf(err))
	}
	defer theirs.Close()
	pid, err := startHelper(keeperRole, theirs.Fd(), []uintptr{null.Fd(), null.Fd(), null.Fd()})
	if err != nil {
		return nil, errors.Join(refusal("/proc/self/exe", "start", errnoOf(err)), ours.close())
	}
	k := &keeperConn{conn: ours, pid: pid, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		for {
			var status unix.WaitStatus
			_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
			switch {
			case errors.Is(err, unix.EINTR):
			case err == nil && status.Stopped(): // by a command; none could start meanwhile
				_ = unix.Kill(pid, unix.SIGCONT)
			default:
				return
			}
		}
	}()
	return k, nil
}

// gone reports whether the keeper has ended.
func (k *keeperConn) gone() bool {
	select {
	case <-k.done:
		return true
	default:
		return !k.conn.alive()
	}
}

func (k *keeperConn) hangUp() { _ = k.conn.close() }

// leave ends the keeper and waits for it. One that is stopped again and again, by
// a command of the same user, would never end by itself.
func (k *keeperConn) leave() {
	k.hangUp()
	timeout := time.NewTimer(farewell + killWait + stopMargin)
	defer timeout.Stop()
	select {
	case <-k.done:
	case <-timeout.C:
		_ = unix.Kill(k.pid, unix.SIGKILL) // our child, not waited for yet
		<-k.done
	}
}

func (k *keeperConn) spawn(socket *os.File) (int, error) {
	answer, err := k.ask(message{kind: kindSpawn, fds: []int{int(socket.Fd())}}, kindSpawned)
	if err != nil {
		return 0, fmt.Errorf("starting a supervisor: %w", errors.Join(workspace.ErrTransient, err))
	}
	switch {
	case answer.num < 0:
		return 0, refusal("/proc/self/exe", "start", syscall.Errno(-answer.num))
	case answer.num == 0:
		return 0, errors.New("starting a supervisor: the commands' keeper answered no process")
	}
	return int(answer.num), nil
}

func (k *keeperConn) ask(question message, want kind) (message, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.conn.file.SetDeadline(time.Now().Add(helperTimeout)); err != nil {
		return message{}, err
	}
	if err := k.conn.send(question); err != nil {
		return message{}, err
	}
	answer, err := k.conn.receive()
	if err == nil && answer.kind != want {
		err = fmt.Errorf("unexpected answer %d", answer.kind)
	}
	if err != nil { // what comes next would be taken for another question's answer
		k.hangUp()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the commands' keeper has ended")
	}
	return answer, err
}

// helper is this process's side of a supervisor.
type helper struct {
	conn *conn
	pool *pool
	pid  int
	done chan struct{} // it has ended or was let go

	mu      sync.Mutex
	current *process // the last one that was given to it
	signals []chan syscall.Errno
}

func (h *helper) hangUp() { _ = h.conn.close() }

// kill ends a supervisor that does not answer. Its keeper stops what it leaves.
func (h *helper) kill() {
	select {
	case <-h.done:
	default:
		if h.pid > 0 { // anything else is a group, or everyone
			_ = unix.Kill(h.pid, unix.SIGKILL)
		}
		h.hangUp()
	}
}

// listen hands the supervisor's messages on until it hangs up.
func (h *helper) listen() {
	defer close(h.done)
	for {
		m, err := h.conn.receive()
		if err != nil {
			break
		}
		p := h.process()
		switch m.kind {
		case kindFree:
			h.pool.put(h)
			continue
		case kindSignaled:
			h.signaled(syscall.Errno(m.num)) //nolint:gosec // an errno
			continue
		}
		if p == nil {
			break
		}
		switch m.kind {
		case kindStarted, kindRefused:
			p.answer <- m
		case kindExited:
			p.finish(int(m.num), nil)
			p.releaseWhenDone()
		case kindStopped:
			p.stopped(m.text)
		}
	}
	h.pool.forget(h)
	h.hangUp()
	if p := h.process(); p != nil {
		p.lost()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.signals {
		close(c)
	}
	h.signals = nil
}

func (h *helper) process() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// give starts a process. That it was not delivered means that it was not
// started.
func (h *helper) give(p *process, m message) (delivered bool, err error) {
	h.mu.Lock()
	h.current = p
	h.mu.Unlock()
	err = h.send(m)
	return err == nil, err
}

// send sends to the supervisor, which may have ended or be stopped. Once it has
// the message, nothing more is asked of the connection: the supervisor may be
// done with it, and be let go, before this returns.
func (h *helper) send(m message) error {
	if err := h.conn.file.SetWriteDeadline(time.Now().Add(helperTimeout)); err != nil {
		return err
	}
	return h.conn.send(m)
}

// signal sends a signal to the current process and waits for what came of it.
func (h *helper) expectSignal() chan syscall.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan syscall.Errno, 1)
	h.signals = append(h.signals, c)
	return c
}

func (h *helper) signaled(errno syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.signals) > 0 {
		h.signals[0] <- errno
		h.signals = h.signals[1:]
	}
}
