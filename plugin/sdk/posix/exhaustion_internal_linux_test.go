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
	"github.com/berth-dev/berth/shared/workspace"
)

// TestSupervisorThatEndsBeforeItIsReady is of one that could not have all that it
// needs: it has started nothing, so that another is given the command. Of one that
// was ready nobody knows, and the command is not run again.
func TestSupervisorThatEndsBeforeItIsReady(t *testing.T) {
	for _, ready := range []bool{false, true} {
		ws, err := Open(Config{Dir: t.TempDir(), ID: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ended := supervisorThatEnds(t, ready)
		p, err := ws.Start(t.Context(), sdk.Command{Args: []string{"/bin/sh", "-c", "exit 7"}})
		switch {
		case ready && (err == nil || errors.Is(err, workspace.ErrTransient)):
			t.Errorf("given to one that was ready: %v, want an error of which the outcome is unknown", err)
		case !ready && err != nil:
			t.Errorf("given to one that was not: %v", err)
		case !ready:
			if code, err := p.Wait(); err != nil || code != 7 {
				t.Errorf("Wait: %d, %v", code, err)
			}
		}
		if err == nil {
			_ = p.Close()
		}
		<-ended
		_ = ws.Close()
	}
}

// supervisorThatEnds is one that waits for a command, and ends when it is given
// one, perhaps after it has said that it is ready.
func supervisorThatEnds(t *testing.T, ready bool) (ended chan struct{}) {
	t.Helper()
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
	other := &port{fd: int(theirs.Fd())}
	if ready {
		other.send(message{kind: kindReady})
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		list := []unix.PollFd{pollIn(other.fd)}
		for list[0].Revents == 0 {
			pollUntil(list, time.Time{})
		}
		if ready { // taken, or what was sent would be unsent by closing
			if m, _, err := other.receive(); err == nil {
				closeAll(m.fds)
			}
		}
		_ = theirs.Close()
	}()
	return ended
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
		for deadline := time.Now().Add(time.Minute); list[0].Revents == 0 && time.Now().Before(deadline); {
			pollUntil(list, deadline) // it is waited for since destroy; SIGCHLD may end this poll first
		}
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
