//go:build docker

package main

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

const (
	// held is for how long a row is watched whose process is stopped: many times
	// what the row takes.
	held = 300 * time.Millisecond
	// patience is for a row whose processes go on, on a busy machine.
	patience = 30 * time.Second
)

// TestEveryRowGoesThroughPluginAndGuest stops first the plugin process and then
// the guest, and sees that the row waits for each.
func TestEveryRowGoesThroughPluginAndGuest(t *testing.T) {
	image := enginetest.Image(t, "busybox")
	b, err := open(t.Context(), build(t), image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			wait(t, b, r, "the plugin", func(work round) []int { return []int{pluginPID(cmp.Or(work.host, b.host))} })
			if r.newGuest {
				return // it cannot be stopped before it is there
			}
			// Its init first, which would have the server go on.
			var guest []int
			for _, role := range []string{" init ", " serve "} {
				one, err := b.guestPIDs(t.Context(), "berth-guest", role)
				if err != nil || len(one) != 1 {
					t.Fatalf("processes of the guest's%s: %v, %v", role, one, err)
				}
				guest = append(guest, one...)
			}
			wait(t, b, r, "the guest", func(round) []int { return guest })
		})
	}
}

// wait does one round of a row while processes are stopped.
func wait(t *testing.T, b *bench, r row, name string, processes func(round) []int) {
	t.Helper()
	work, err := r.ours(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	pids := processes(work)
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- work.do() }()
	select {
	case err := <-done:
		t.Errorf("it was done without %s (%v)", name, err)
		done <- err
	case <-time.After(held):
	}
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	select {
	case ended := <-done:
		err = errors.Join(err, ended)
	case <-time.After(patience):
		t.Fatalf("it has not ended %v after %s went on", patience, name)
	}
	if work.after != nil {
		err = errors.Join(err, work.after())
	}
	if err != nil {
		t.Error(err)
	}
}

// build builds the plugin and the guest as `make build` does.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for output, pkg := range map[string]string{
		"berth-provider-docker":               "./cmd/berth-provider-docker",
		"berth-guest-linux-" + runtime.GOARCH: "./cmd/berth-guest",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, output), pkg)
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", output, err, out)
		}
	}
	return dir
}
