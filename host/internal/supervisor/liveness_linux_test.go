package supervisor

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/test/faults"
)

// A plugin that hangs is told by the status, killed, and started again.
func TestFrozenPluginIsKilledAndRestarted(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	cfg.LivenessInterval = 200 * time.Millisecond
	s := supervise(t, cfg)
	inst := acquire(t, s)
	failed := make(chan error, 1)
	go func() {
		_, err := do(t.Context(), inst, "sleep/1h")
		failed <- err
	}()
	freeze(t, inst.PID())
	poll(t, "unresponsive", func() bool {
		state := s.Status().State
		return state == Unresponsive || state == Failed
	})
	err := <-failed
	if status.Code(err) != codes.Unavailable {
		t.Errorf("call in flight: %v", err)
	}
	if plug := inst.Error("run", "r", err, true); plug.ExitStatus != "signal: killed" || !strings.Contains(plug.Reason, "did not answer 3 health checks") {
		t.Errorf("%+v", plug)
	}
	if again := acquire(t, s); again.PID() == inst.PID() {
		t.Error("not started again")
	}
}

// A plugin that is only slow for a while, and one that is busy, live.
func TestLivenessForgives(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	cfg.LivenessInterval = 400 * time.Millisecond
	s := supervise(t, cfg)
	inst := acquire(t, s)
	freeze(t, inst.PID())
	poll(t, "unresponsive", func() bool { return s.Status().State == Unresponsive })
	if err := syscall.Kill(inst.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	poll(t, "running", func() bool { return s.Status().State == Running })
	if answer, err := do(t.Context(), inst, "ping"); err != nil || answer != "pong" {
		t.Errorf("%q, %v", answer, err)
	}
}

// A host that was stopped itself, for longer than a plugin may be silent, does
// not take that for the plugin's silence.
func TestStalledHostKillsNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+plugins.Dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	ask := func() string {
		if _, err := fmt.Fprintln(in); err != nil || !lines.Scan() {
			t.Fatal(err, lines.Err())
		}
		return lines.Text()
	}
	before := ask()
	pid, err := strconv.Atoi(strings.Fields(before)[0])
	if err != nil {
		t.Fatal(before)
	}
	for range 5 {
		// Both: the answers of a plugin that runs would be waiting.
		for _, p := range []int{cmd.Process.Pid, pid} {
			if err := syscall.Kill(p, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(4 * livenessFailures * hostLiveness) // it is time that is tested
		for _, p := range []int{cmd.Process.Pid, pid} {
			if err := syscall.Kill(p, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		if after := ask(); after != before {
			t.Errorf("before the stall %q, after it %q", before, after)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
