package posix

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHungSupervisorIsKilled is of one that takes a Stop and never answers.
func TestHungSupervisorIsKilled(t *testing.T) {
	cmd := exec.Command("sleep", "987")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	supervisors.retain()
	defer supervisors.release()
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	keeper, err := supervisors.theKeeper()
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{conn: ours, pool: &supervisors, keeper: keeper, pid: cmd.Process.Pid, done: make(chan struct{})}
	p := &process{helper: h, answer: make(chan message, 1), done: make(chan struct{})}
	h.current = p
	closing, err := p.pipes(false, &message{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.abandon()
	closeAll(closing)
	go h.listen()
	begun := time.Now()
	if survivors := p.Stop(0); survivors != "" {
		t.Errorf("survivors: %s", survivors)
	}
	if took := time.Since(begun); took < killWait {
		t.Errorf("given up after %v, of %v that it has for its work", took, killWait)
	}
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v, want killed", cmd.ProcessState)
	}
	<-p.done
	if p.err == nil {
		t.Error("how the command ended should be unknown")
	}
}
