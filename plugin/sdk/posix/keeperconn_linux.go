package posix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/shared/workspace"
)

// keeperConn is this process's side of a keeper.
type keeperConn struct {
	mu    sync.Mutex // one question at a time
	ready bool       // the keeper has said so
	conn  *conn
	pid   int
	done  chan struct{} // the process has ended
}

func startKeeper(groups []string) (*keeperConn, error) {
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
	k := &keeperConn{conn: ours, done: make(chan struct{})}
	started := make(chan error)
	go k.run(theirs, null, groups, started)
	if err := <-started; err != nil {
		<-k.done
		if !errors.As(err, new(*groupError)) {
			err = helperRefusal(errnoOf(err))
		}
		return nil, errors.Join(err, ours.close())
	}
	return k, nil
}

// run starts the keeper and waits for its end, on a thread of its own: what a
// thread has and its children inherit, such as its niceness, is reset there, and
// with it for all that the keeper will start. A thread that was changed ends with
// this goroutine.
func (k *keeperConn) run(socket, null *os.File, groups []string, started chan<- error) {
	defer close(k.done)
	runtime.LockOSThread()
	if changed := resetThread(); !changed {
		defer runtime.UnlockOSThread()
	}
	var err error
	k.pid, err = startHelper(keeperRole, socket.Fd(), []uintptr{null.Fd(), null.Fd(), null.Fd()}, oneProcessor)
	if err == nil {
		if err = enterGroups(k.pid, groups); err != nil {
			_ = unix.Kill(k.pid, unix.SIGKILL)
		}
	}
	if started <- err; k.pid <= 0 {
		return
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(k.pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && status.Stopped(): // by a command; none could start meanwhile
			_ = unix.Kill(k.pid, unix.SIGCONT)
		default:
			return
		}
	}
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
		return 0, err
	}
	switch {
	case answer.num < 0:
		return 0, helperRefusal(syscall.Errno(-answer.num))
	case answer.num == 0:
		return 0, errors.New("starting a supervisor: the commands' keeper answered no process")
	}
	return int(answer.num), nil
}

func (k *keeperConn) ask(question message, want kind) (message, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, err := k.exchange(question, want)
	if err != nil { // what comes next would be taken for another question's answer
		k.hangUp()
	}
	switch {
	case err != nil && !k.ready:
		return message{}, notStarted("the commands' keeper")
	case errors.Is(err, io.EOF):
		err = errors.New("it has ended")
	}
	if err != nil {
		err = fmt.Errorf("asking the commands' keeper: %w: %w", err, workspace.ErrTransient)
	}
	return answer, err
}

func (k *keeperConn) exchange(question message, want kind) (message, error) {
	if err := k.conn.file.SetDeadline(time.Now().Add(helperTimeout)); err != nil {
		return message{}, err
	}
	if err := k.conn.send(question); err != nil {
		return message{}, err
	}
	if !k.ready {
		if _, err := k.receive(kindReady); err != nil {
			return message{}, err
		}
		k.ready = true
	}
	return k.receive(want)
}

func (k *keeperConn) receive(want kind) (message, error) {
	answer, err := k.conn.receive()
	if err == nil && answer.kind != want {
		closeAll(answer.fds)
		err = fmt.Errorf("unexpected answer %d", answer.kind)
	}
	return answer, err
}

// notStarted is for a helper that has ended before it was ready, so before it did
// anything.
func notStarted(who string) error {
	return fmt.Errorf("starting the command: %s ended while it started, as when the limit of processes is reached (%s) or of memory: %w", who, processLimits, workspace.ErrTransient)
}

// helperRefusal is for a helper that could not be started.
func helperRefusal(errno syscall.Errno) error {
	if errno == unix.ENOENT || errno == unix.EACCES {
		return fmt.Errorf("starting the command: starting its supervisor from /proc/self/exe: %w: commands need /proc", errors.Join(errors.ErrUnsupported, errno))
	}
	return refusal("/proc/self/exe", "start", errno)
}
