package posix

import (
	"errors"
	"os"
	"runtime/metrics"
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
	// orphanWait is how long after a command's start its orphans may wait to be
	// reaped: most commands have none, and are done by then.
	orphanWait = 20 * time.Millisecond
	// maxGarbage is how much memory a supervisor may use up, since it collects no
	// garbage: then it ends when it is free.
	maxGarbage = 4 << 20
)

// supervisor runs one command at a time and is the reaper of all that descends
// from it. It is one goroutine, which waits in one place, for the owner, its
// children and pipes at once, and so needs few threads.
type supervisor struct {
	owner    *port
	children *children
	score    oomScore
	tree     tree
	drains   drains
	poll     []unix.PollFd

	direct  int       // the command's own process, 0 when there is none
	exit    int       // a descriptor that tells its end, -1 without
	look    time.Time // when orphans are waited for, at the latest
	none    bool      // there was no child at all when last looked
	stdout  int       // our descriptors of the pipes' read ends, -1 without
	stderr  int
	busy    bool // from a command's start until the owner can give the next
	release bool // the owner has taken all that it wants of the command
	spent   bool // it has used up its memory and takes no further command

	stopping bool
	kill     time.Time // when the tree is killed, while stopping
}

// supervise is a supervisor process. It returns its exit status when the owner
// has gone and nothing is left to do.
func supervise(owner *port) int {
	catchSignals()
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	s := &supervisor{
		owner: owner, exit: -1, stdout: -1, stderr: -1, none: true,
		tree: tree{root: os.Getpid(), kill: killProc}, score: newOOMScore(),
	}
	if err == nil {
		s.children, err = newChildren(unix.WEXITED)
	}
	if err == nil {
		err = makeThreads(helperThreads)
	}
	if err != nil {
		return 2
	}
	owner.send(message{kind: kindReady})
	for {
		s.wait()
		s.reap()
		if s.stopping && !time.Now().Before(s.kill) {
			s.destroy()
		}
		s.settle()
		for {
			m, complete, err := owner.receive()
			if err != nil {
				return s.orphaned()
			}
			if !complete {
				break
			}
			s.handle(m)
			s.settle()
		}
		if s.spent {
			return 0
		}
	}
}

// Places in the list of what is waited for; the drains' pipes follow.
const (
	pollOwner = iota
	pollChildren
	pollExit
	pollDrains
)

// wait waits until there may be something to do, and drains pipes.
func (s *supervisor) wait() {
	now, until := time.Now(), time.Time{}
	switch {
	case s.none || s.children.watched:
	case now.Before(s.look):
		until = s.look
	default:
		s.children.start()
	}
	if s.stopping && (until.IsZero() || s.kill.Before(until)) {
		until = s.kill
	}
	s.poll = append(s.poll[:0], pollIn(s.owner.fd), pollIn(s.children.fd), pollIn(s.exit))
	s.poll = s.drains.poll(s.poll)
	pollUntil(s.poll, until)
	if s.poll[pollChildren].Revents != 0 {
		s.children.changed()
	}
	s.drains.read(s.poll[pollDrains:])
}

// pollIn is a place to wait for input; a descriptor below 0 never has any.
func pollIn(fd int) unix.PollFd { return unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} } //nolint:gosec // a descriptor

// pollUntil waits for any of a list, until a time unless that is zero. It may
// return before, as when a signal has come.
func pollUntil(list []unix.PollFd, until time.Time) {
	timeout := -1
	if !until.IsZero() { // rounded up: less would be waited for again and again
		timeout = int((max(time.Until(until), 0) + time.Millisecond - 1) / time.Millisecond)
	}
	if _, err := unix.Poll(list, timeout); err != nil {
		for i := range list {
			list[i].Revents = 0
		}
	}
}

func (s *supervisor) handle(m message) {
	switch m.kind {
	case kindStart:
		s.start(m)
		return
	case kindSignal:
		errno := unix.ESRCH
		if s.direct != 0 {
			errno = 0
			if err := unix.Kill(s.direct, unix.Signal(m.num)); err != nil {
				errno = errnoOf(err)
			}
		}
		s.owner.send(message{kind: kindSignaled, num: int64(errno)})
	case kindStop:
		s.stop(time.Duration(m.num))
	case kindRelease:
		s.release = true
		s.drain(m.num)
	}
	closeAll(m.fds)
}

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
		s.owner.send(message{kind: kindRefused, num: int64(unix.EINVAL), text: "start"})
		s.free()
		return
	}
	defer closeAll(fds[:2])
	if err := unix.Chdir(m.text); err != nil {
		closeAll(fds[2:])
		s.owner.send(message{kind: kindRefused, num: int64(errnoOf(err)), text: "chdir"})
		s.free()
		return
	}
	var pid int
	var failed *notRun
	var err error
	s.score.raised(func() {
		pid, failed, err = startProgram(m.args, m.env, []uintptr{uintptr(stdin), uintptr(fds[0]), uintptr(fds[1])})
	})
	if err != nil {
		closeAll(fds[2:])
		s.owner.send(message{kind: kindRefused, num: int64(errnoOf(err)), text: "start"})
		s.free()
		return
	}
	s.busy, s.release, s.stopping = true, false, false
	s.stdout, s.stderr = fds[2], fds[3]
	s.direct, s.none = pid, pid == 0
	if pid != 0 {
		s.look = time.Now()
		if s.exit, err = unix.PidfdOpen(pid, 0); err != nil {
			s.exit = -1 // not known here: its end is seen as any child's
		} else {
			s.look = s.look.Add(orphanWait)
		}
	}
	s.owner.send(message{kind: kindStarted})
	if failed != nil {
		_, _ = unix.Write(fds[1], []byte(failed.reason+"\n"))
		s.owner.send(message{kind: kindExited, num: int64(failed.code)})
	}
}

// startProgram forks and executes, from the current directory.
func startProgram(args, env []string, files []uintptr) (pid int, failed *notRun, err error) {
	file, failed := lookUp(args[0], "", env)
	if failed != nil {
		return 0, failed, nil
	}
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}}
	for deadline := time.Now().Add(busyWait); ; {
		pid, err = syscall.ForkExec(file, args, attr)
		if !errors.Is(err, unix.ETXTBSY) || time.Now().After(deadline) {
			break
		}
		pollUntil(nil, time.Now().Add(busyRetry))
	}
	if err != nil {
		failed, err = startFailure(file, "", err)
		return 0, failed, err
	}
	return pid, nil, nil
}

// reap waits for all that have ended, and tells of the command's own process.
func (s *supervisor) reap() {
	for !s.none {
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
			s.direct, s.look = 0, time.Time{}
			if s.exit >= 0 {
				_ = unix.Close(s.exit)
				s.exit = -1
			}
			s.owner.send(message{kind: kindExited, num: int64(exitCode(status))})
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
}

func (s *supervisor) stopped(survivors string) {
	s.stopping = false
	s.owner.send(message{kind: kindStopped, text: survivors})
}

// unseen is the report of children that are there but in no listing.
const unseen = "processes that /proc does not show to this user"

// destroy kills until none is left, or for as long as it may.
func (s *supervisor) destroy() {
	for deadline := time.Now().Add(killWait); ; {
		refused := s.tree.destroy()
		if s.reap(); s.none {
			break
		}
		if !time.Now().Before(deadline) {
			survivors := s.tree.survivors(refused)
			if s.reap(); s.none { // on a busy machine they end while they are looked for
				break
			}
			if survivors == "" {
				survivors = unseen
			}
			s.stopped(survivors)
			return
		}
		s.children.start()
		list := []unix.PollFd{pollIn(s.children.fd)}
		if pollUntil(list, time.Now().Add(killRetry)); list[0].Revents != 0 {
			s.children.changed()
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
			s.free()
		}
	}
}

// free tells the owner that it can give the next command, unless too much memory
// has been used: then this process ends instead.
func (s *supervisor) free() {
	s.spent = len(s.drains.pipes) == 0 && allocated() > maxGarbage
	if !s.spent {
		s.owner.send(message{kind: kindFree})
	}
}

// allocated is how much memory was ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
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
	for s.owner.fd = -1; len(s.drains.pipes) > 0; s.reap() {
		s.wait()
	}
	return 0
}
