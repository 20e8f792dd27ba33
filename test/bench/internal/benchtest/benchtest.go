// Package benchtest shows that a benchmark measures what it says: the processes that
// work goes through are stopped, and the work waits for them.
package benchtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/bench/internal/proc"
)

const (
	// held is for how long work is watched whose process is stopped: many times what
	// it takes.
	held = 300 * time.Millisecond
	// patience is for work whose processes go on, on a busy machine.
	patience = 30 * time.Second
)

// Waits does some work while processes are stopped, and sees it done once they go on.
func Waits(t *testing.T, name string, pids []int, do func() error) {
	t.Helper()
	for _, pid := range pids {
		if err := hold(pid); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		t.Errorf("it was done without %s (%v)", name, err)
		done <- err
	case <-time.After(held):
	}
	var err error
	for _, pid := range pids {
		err = errors.Join(err, proc.Continue(pid))
	}
	select {
	case ended := <-done:
		err = errors.Join(err, ended)
	case <-time.After(patience):
		t.Fatalf("it has not ended %v after %s went on", patience, name)
	}
	if err != nil {
		t.Error(err)
	}
}

// hold stops a process, and waits until all its threads have stopped: one that goes on
// a little longer may still do something about the next process that is stopped.
func hold(pid int) error {
	if err := proc.Stop(pid); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); !proc.Stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("process %d has not stopped after %v", pid, patience), proc.Continue(pid))
		}
	}
	return nil
}

// Build builds commands of the module, and the guest, as `make build` does.
func Build(t *testing.T, commands ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	outputs := map[string]string{"berth-guest-linux-" + runtime.GOARCH: "./cmd/berth-guest"}
	for _, command := range commands {
		outputs[filepath.Base(command)] = command
	}
	for output, pkg := range outputs {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, output), pkg)
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", output, err, out)
		}
	}
	return dir
}
