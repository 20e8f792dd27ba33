package process

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/test/faults"
)

// A pid that the kernel has given to another process since is never signalled,
// whatever becomes of the plugin that had it.
func TestAReusedPIDIsNeverSignalled(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	if _, err := do(t.Context(), p, "exit/0"); err == nil {
		t.Fatal("it did not end")
	}
	<-p.Finished()
	bystander := exec.Command("sleep", "300")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	p.mu.Lock()
	p.pid = bystander.Process.Pid // as if the kernel had chosen it again
	p.mu.Unlock()
	p.Kill("for the test")
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if gone(bystander.Process.Pid) {
		t.Error("another process was killed in its place")
	}
	if p.Reason() != "" {
		t.Errorf("it was killed: %s", p.Reason())
	}
}

// No stream of go-plugin's broker reaches a plugin.
func TestTheBrokerIsNotUsed(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	poll(t, "the streams of the start", func() bool { return mustDo(t, p, "streams") != "" })
	if got := mustDo(t, p, "streams"); strings.Contains(got, brokerService) {
		t.Errorf("streams %s", got)
	}
}

// However a plugin ends, a hundred of them leave nothing in the runtime folder.
func TestCrashesLeaveNoFolder(t *testing.T) {
	for name, end := range map[string]func(*Process){
		"exit":    func(p *Process) { _, _ = do(t.Context(), p, "exit/1") },
		"SIGKILL": func(p *Process) { _ = syscall.Kill(p.PID(), syscall.SIGKILL) },
		"SIGTERM": func(p *Process) { _ = syscall.Kill(p.PID(), syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			tmp := shortTemp(t)
			t.Setenv("TMPDIR", tmp)
			t.Setenv("XDG_RUNTIME_DIR", "")
			const crashes = 100
			for range crashes {
				p := start(t, testConfig(t, faults.Good))
				if len(socketFolders(t, tmp)) == 0 {
					t.Fatal("it has no folder: this test shows nothing")
				}
				end(p)
				<-p.Finished()
				if p.Reason() != "" {
					t.Fatalf("it did not end by itself: %s", p.Reason())
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			if left := socketFolders(t, tmp); len(left) != 0 {
				t.Errorf("%q", left)
			}
		})
	}
}
