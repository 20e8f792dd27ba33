package posix

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killWait is how long after the first SIGKILL the last process must be gone;
	// what is left then is reported (contract C5).
	killWait = 2 * time.Second
	// killRetry is between two rounds of killing when no child has ended.
	killRetry = 5 * time.Millisecond
	// busyWait is how long a program file that is being written is waited for:
	// a process forked just now may hold it open until it executes another.
	busyWait = time.Second
	// busyRetry is between two tries of that.
	busyRetry = 5 * time.Millisecond
)

// supervisor runs one command at a time and is the reaper of all that descends
// from it. All its state belongs to the goroutine of supervise.
type supervisor struct {
	conn   *conn
	tree   tree
	childs chan os.Signal
	drains drains

	direct  int  // the command's own process, 0 when there is none
	none    bool // there was no child at all when last looked
	stdout  int  // our descriptors of the pipes' read ends, -1 without
	stderr  int
	busy    bool // from a command's start until the owner can give the next
	release bool // the owner has taken all that it wants of the command

	grace    *time.Timer // until the tree is killed
	kill     time.Time   // when that is, while stopping
	stopping bool
}

// supervise is a supervisor process. It returns its exit status when the owner
// has gone and nothing is left to do.
func supervise(c *conn) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 2
	}
	s := &supervisor{
		conn: c, childs: make(chan os.Signal, 1), stdout: -1, stderr: -1, none: true,
		tree:   tree{root: os.Getpid(), kill: killProc},
		drains: drains{ended: make(chan struct{})},
		grace:  time.NewTimer(time.Hour),
	}
	s.grace.Stop()
	signal.Notify(s.childs, unix.SIGCHLD)
	messages := c.messages()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return s.orphaned()
			}
			s.handle(m)
		case <-s.childs:
			s.reap()
		case <-s.grace.C:
			s.destroy()
		case <-s.drains.ended:
			s.drains.left--
		}
		s.settle()
	}
}

func (s *supervisor) handle(m message) {
	switch m.kind {
	case kindStart:
		s.start(m)
	case kindSignal:
		errno := unix.ESRCH
		if s.direct != 0 {
			errno = 0
			if err := unix.Kill(s.direct, unix.Signal(m.num)); err != nil {
				errno = errnoOf(err)
			}
		}
		s.send(message{kind: kindSignaled, num: int64(errno)})
	case kindStop:
		s.stop(time.Duration(m.num))
	case kindRelease:
		s.release = true
		s.drain(m.num)
	}
}

// send tells the owner; that it has gone is learnt from reading.
func (s *supervisor) send(m message) { _ = s.conn.send(m) }

// start starts a command: its descriptors are stdin, if any, both outputs and
// the read ends of these.
func (s *supervisor) start(m message) {
	defer func() { _ = unix.Chdir("/") }() // a busy directory could not be unmounted
	fds := m.fds
	stdin := 0
	if m.num == 1 && len(fds) > 0 {
		stdin, fds = fds[0], fds[1:]
		defer unix.Close(stdin)
	}
	if len(fds) != 4 || len(m.args) == 0 {
		closeAll(fds)
		s.send(message{kind: kindRefused, num: int64(unix.EINVAL), text: "start"})
		return
	}
	defer closeAll(fds[:2])
	if err := unix.Chdir(m.text); err != nil {
		closeAll(fds[2:])
		s.send(message{kind: kindRefused, num: int64(errnoOf(err)), text: "chdir"})
		return
	}
	pid, failed, err := startProgram(m.args, m.env, []uintptr{uintptr(stdin), uintptr(fds[0]), uintptr(fds[1])})
	if err != nil {
		closeAll(fds[2:])
		s.send(message{kind: kindRefused, num: int64(errnoOf(err)), text: "start"})
		return
	}
	s.busy, s.release, s.stopping = true, false, false
	s.stdout, s.stderr = fds[2], fds[3]
	s.direct, s.none = pid, pid == 0
	s.send(message{kind: kindStarted})
	if failed != nil {
		_, _ = unix.Write(fds[1], []byte(failed.reason+"\n"))
		s.send(message{kind: kindExited, num: int64(failed.code)})
	}
}

// startProgram forks and executes, from the current directory.
func startProgram(args, env []string, files []uintptr) (pid int, failed *notRun, err error) {
	file, failed := lookUp(args[0], "", env)
	if failed != nil {
		return 0, failed, nil
	}
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}}
	deadline := time.Now().Add(busyWait)
	withOOMScore(func() {
		for {
			pid, err = syscall.ForkExec(file, args, attr)
			if !errors.Is(err, unix.ETXTBSY) || time.Now().After(deadline) {
				return
			}
			time.Sleep(busyRetry)
		}
	})
	if err != nil {
		failed, err = startFailure(file, "", err)
		return 0, failed, err
	}
	return pid, nil, nil
}

// reap waits for all that have ended, and tells of the command's own process.
func (s *supervisor) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			s.none = errors.Is(err, unix.ECHILD)
			return
		case pid == 0:
			return
		case pid == s.direct:
			s.direct = 0
			s.send(message{kind: kindExited, num: int64(exitCode(status))})
		}
	}
}

// stop begins to end the tree; a second call can only make it sooner.
func (s *supervisor) stop(grace time.Duration) {
	s.reap()
	if s.none {
		s.stopped("")
		return
	}
	kill := time.Now().Add(max(grace, 0))
	if s.stopping && !kill.Before(s.kill) {
		return
	}
	if !s.stopping {
		s.stopping = true
		if grace > 0 {
			s.tree.terminate()
		}
	}
	s.kill = kill
	s.grace.Reset(max(grace, 0))
}

func (s *supervisor) stopped(survivors string) {
	s.grace.Stop()
	s.stopping = false
	s.send(message{kind: kindStopped, text: survivors})
}

// destroy kills until none is left, or for as long as it may.
func (s *supervisor) destroy() {
	var refused map[int]error
	for deadline := time.Now().Add(killWait); ; {
		refused = s.tree.destroy()
		if s.reap(); s.none {
			break
		}
		if !time.Now().Before(deadline) {
			s.stopped(s.tree.survivors(refused))
			return
		}
		select {
		case <-s.childs:
		case <-time.After(killRetry):
		}
		s.reap()
	}
	s.stopped("")
}

// drain takes over the read ends that somebody still holds, so that who writes
// there later is not ended by it (contract C8).
func (s *supervisor) drain(held int64) {
	for _, end := range []struct {
		fd  *int
		bit int64
	}{{&s.stdout, heldStdout}, {&s.stderr, heldStderr}} {
		switch {
		case *end.fd < 0:
		case held&end.bit == 0:
			_ = unix.Close(*end.fd)
		default:
			s.drains.add(*end.fd)
		}
		*end.fd = -1
	}
}

// settle tells the owner when the tree is empty, and the supervisor free.
func (s *supervisor) settle() {
	if s.stopping && s.none {
		s.stopped("")
	}
	if s.busy && s.release && s.direct == 0 && !s.stopping {
		if s.reap(); s.none {
			s.busy = false
			s.send(message{kind: kindFree})
		}
	}
}

// orphaned ends this process when its owner has: a command that still runs is
// stopped, the background children of one that has ended go on, and what they
// write is drained for as long as they hold the pipes.
func (s *supervisor) orphaned() int {
	s.reap()
	if s.direct != 0 || s.stopping {
		s.destroy()
	} else if s.busy && !s.release {
		s.drain(heldStdout | heldStderr)
	}
	for s.drains.left > 0 {
		select {
		case <-s.childs:
			s.reap()
		case <-s.drains.ended:
			s.drains.left--
		}
	}
	return 0
}

// drains are goroutines that read pipes to their end and drop what they read.
type drains struct {
	left  int
	ended chan struct{}
}

func (d *drains) add(fd int) {
	d.left++
	pipe := os.NewFile(uintptr(fd), "pipe "+strconv.Itoa(fd)) // non-blocking, as its maker has made it
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		_ = pipe.Close()
		d.ended <- struct{}{}
	}()
}
