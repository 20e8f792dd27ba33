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
	cfg.LivenessInterval = 800 * time.Millisecond
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

// A host that was stopped itself does not count that time as the plugin's
// silence.
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
	// The plugin is silent all the time, and so seven stalls of the host, each
	// longer than an interval, are checks without an answer by the clock. In the
	// time that the host lived through there is hardly one.
	freeze(t, pid)
	for range 7 {
		freeze(t, cmd.Process.Pid)
		<-time.After(hostLiveness + hostLiveness/5) // it is time that is tested
		if err := syscall.Kill(cmd.Process.Pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		<-time.After(hostLiveness / 10)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if after := ask(); strings.Fields(after)[0] != strings.Fields(before)[0] || !strings.HasSuffix(after, "<nil>") {
		t.Errorf("before the stalls %q, after them %q", before, after)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
