//go:build unix && !linux

package posix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// killWait is how long after SIGKILL a group must be gone (contract C5).
	killWait = 2 * time.Second
	// killPoll is between two looks whether a group is gone.
	killPoll = 10 * time.Millisecond
)

type commands struct{}

func (commands) open()  {}
func (commands) close() {}

// process is a command in a process group of its own.
type process struct {
	streams
	ws   *Workspace
	pid  int
	done chan struct{} // closed when it has been waited for

	mu       sync.Mutex
	finished bool
	stopping bool
	code     int
	err      error
}

var _ sdk.Process = (*process)(nil)

// Start starts a command (contract C1, C2, C3). Unlike on Linux it inherits
// this process's limits and priorities.
func (w *Workspace) Start(ctx context.Context, cmd sdk.Command) (sdk.Process, error) {
	if ctx.Err() != nil {
		return nil, startCancelled(ctx)
	}
	if err := w.available(); err != nil {
		return nil, err
	}
	dir := w.dirOf(cmd)
	switch info, err := os.Stat(dir); {
	case err != nil:
		return nil, &fs.PathError{Op: "chdir", Path: cmp.Or(cmd.Dir, dir), Err: cause(err)}
	case !info.IsDir():
		return nil, &fs.PathError{Op: "chdir", Path: cmp.Or(cmd.Dir, dir), Err: syscall.ENOTDIR}
	}
	p := &process{ws: w, done: make(chan struct{})}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, refusal(os.DevNull, "open", errnoOf(err))
	}
	defer null.Close()
	theirs := []int{int(null.Fd())}
	if cmd.Stdin {
		if p.stdin, theirs[0], err = pipe(writeEnd); err != nil {
			return nil, refusal(cmd.Dir, "pipe", errnoOf(err))
		}
		defer closeAll(theirs[:1:1])
	}
	for _, o := range []**output{&p.stdout, &p.stderr} {
		var fd int
		if *o, fd, err = newOutput(); err != nil {
			p.abandon()
			return nil, refusal(cmd.Dir, "pipe", errnoOf(err))
		}
		theirs = append(theirs, fd)
		defer closeAll([]int{fd})
	}
	if err := p.start(cmd, dir, w.environment(cmd.Env), theirs); err != nil {
		p.abandon()
		return nil, err
	}
	return p, nil
}

func (p *process) start(cmd sdk.Command, dir string, env []string, std []int) error {
	file, failed := lookUp(cmd.Args[0], dir, env)
	if failed == nil {
		pid, err := syscall.ForkExec(file, cmd.Args, &syscall.ProcAttr{
			Dir: dir, Env: env,
			Files: []uintptr{uintptr(std[0]), uintptr(std[1]), uintptr(std[2])},
			Sys:   &syscall.SysProcAttr{Setpgid: true},
		})
		if err == nil {
			p.pid = pid
			go p.wait()
			return nil
		}
		if failed, err = startFailure(file, dir, err); err != nil {
			return refusal(cmd.Dir, "start", errnoOf(err))
		}
	}
	_, _ = unix.Write(std[2], []byte(failed.reason+"\n"))
	p.finish(failed.code, nil)
	return nil
}

func (p *process) wait() {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(p.pid, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.finish(0, fmt.Errorf("waiting for the command: %w", err))
			return
		}
		p.finish(exitCode(status), nil)
		return
	}
}

func (p *process) finish(code int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished, p.code, p.err = true, code, err
	for _, o := range []*output{p.stdout, p.stderr} {
		o.endDraining()
	}
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	close(p.done)
}

// Wait returns the exit code (contract C3).
func (p *process) Wait() (int, error) {
	<-p.done
	if err := p.ws.available(); errors.Is(err, workspace.ErrUnavailable) {
		return 0, err
	}
	return p.code, p.err
}

// Signal sends to the direct process.
func (p *process) Signal(_ context.Context, sig workspace.Signal) error {
	number := unix.SignalNum("SIG" + string(sig))
	if number == 0 {
		return fmt.Errorf("signal %q is not known: %w", string(sig), workspace.ErrInvalid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return os.ErrProcessDone
	}
	if err := unix.Kill(p.pid, number); err != nil {
		return fmt.Errorf("sending signal %s: %w", sig, err)
	}
	return nil
}

// Stop ends the command's process group. What has left it escapes.
func (p *process) Stop(grace time.Duration) (survivors string) {
	p.mu.Lock()
	if p.finished && !p.stopping {
		p.mu.Unlock()
		return ""
	}
	p.stopping = true
	p.mu.Unlock()
	if grace > 0 && (unix.Kill(-p.pid, unix.SIGTERM) != nil || p.gone(grace)) {
		return ""
	}
	if err := unix.Kill(-p.pid, unix.SIGKILL); err != nil || p.gone(killWait) {
		if errors.Is(err, unix.EPERM) {
			return fmt.Sprintf("process group %d: %v", p.pid, err)
		}
		return ""
	}
	return fmt.Sprintf("process group %d: did not end when killed", p.pid)
}

// gone waits until no process is in the group.
func (p *process) gone(wait time.Duration) bool {
	for deadline := time.Now().Add(wait); ; time.Sleep(killPoll) {
		if err := unix.Kill(-p.pid, 0); errors.Is(err, unix.ESRCH) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// Close gives up the output that was not read, and stops a command that still
// runs.
func (p *process) Close() error {
	select {
	case <-p.done:
	default:
		p.Stop(0)
	}
	p.abandon()
	return nil
}

// endDraining keeps what the pipe holds and drains what comes later for as long
// as anybody writes and this process lives.
func (o *output) endDraining() {
	held := o.take()
	drain := -1
	if held {
		_ = o.raw.Control(func(fd uintptr) { drain, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	_ = o.pipe.Close()
	if drain >= 0 {
		later := os.NewFile(uintptr(drain), "pipe")
		go func() { // ends with the last writer
			defer later.Close()
			_, _ = io.Copy(io.Discard, later)
		}()
	}
}
