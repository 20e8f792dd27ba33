package posix

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helper is this process's side of a supervisor.
type helper struct {
	conn      *conn
	pool      *pool
	keeper    *keeperConn // its parent
	pid       int
	done      chan struct{} // it has ended or was let go
	idleSince time.Time     // of one in the pool, which holds its lock

	mu      sync.Mutex
	ready   bool     // it has what it needs; before, it has read nothing
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
		case kindReady:
			h.mu.Lock()
			h.ready = true
			h.mu.Unlock()
			continue
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

// isReady reports whether it has ever been ready.
func (h *helper) isReady() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready
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
