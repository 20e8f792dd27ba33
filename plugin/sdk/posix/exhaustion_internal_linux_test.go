package posix

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
)

// TestSupervisorThatEndsBeforeItIsReady is of one that could not have all that it
// needs: it has started nothing, so that another is given the command.
func TestSupervisorThatEndsBeforeItIsReady(t *testing.T) {
	ws, err := Open(Config{Dir: t.TempDir(), ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{conn: ours, pool: &supervisors, done: make(chan struct{})}
	go h.listen()
	supervisors.mu.Lock()
	supervisors.all = map[*helper]struct{}{h: {}}
	supervisors.idle = []*helper{h}
	supervisors.mu.Unlock()
	fd := int(theirs.Fd())
	given := make(chan struct{})
	go func() { // until it is given a command, which it does not take
		defer close(given)
		poll := []unix.PollFd{pollIn(fd)}
		for {
			if n, err := unix.Poll(poll, -1); n > 0 || !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = theirs.Close()
	}()
	p, err := ws.Start(t.Context(), sdk.Command{Args: []string{"/bin/sh", "-c", "exit 7"}})
	if err != nil {
		t.Fatalf("given to one that ended: %v", err)
	}
	defer p.Close()
	if code, err := p.Wait(); err != nil || code != 7 {
		t.Errorf("Wait: %d, %v", code, err)
	}
	<-given
}

// TestUnseenChildrenAreReported is of children that are not in /proc, as it may be
// mounted to hide other users' processes.
func TestUnseenChildrenAreReported(t *testing.T) {
	cmd := exec.Command("sleep", "987")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.close()
	defer theirs.Close()
	owner, err := newPort(int(theirs.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	children, err := newChildren(unix.WEXITED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		list := []unix.PollFd{pollIn(children.fd)}
		pollUntil(list, time.Now().Add(killWait)) // it is waited for since destroy
		close(children.watch)
		_ = cmd.Wait()
		if list[0].Revents == 0 {
			t.Error("the end of a child was not told")
		}
		_ = unix.Close(children.fd)
	}()
	s := &supervisor{owner: owner, children: children, exit: -1, tree: tree{root: -1, kill: killProc}, direct: cmd.Process.Pid, stopping: true}
	s.destroy()
	m, err := ours.receive()
	if err != nil || m.kind != kindStopped || m.text != unseen {
		t.Errorf("told %+v, %v, want %q", m, err, unseen)
	}
}

// TestFileCallsWaitForTheirTurn is of a process that has as many of them at once
// as it has threads for.
func TestFileCallsWaitForTheirTurn(t *testing.T) {
	ws, err := Open(Config{Dir: t.TempDir(), ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	calls := make(chan struct{}, 1)
	fileCalls.Store(&calls)
	defer fileCalls.Store(nil)
	if _, err := ws.Stat(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	calls <- struct{}{} // somebody else's
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := ws.Stat(ctx, "."); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "stat .: ") {
		t.Errorf("out of turn: %v", err)
	}
	go func() { <-calls }()
	if _, err := ws.Stat(t.Context(), "."); err != nil {
		t.Error(err)
	}
	if len(calls) != 0 {
		t.Error("a call has not ended")
	}
}
