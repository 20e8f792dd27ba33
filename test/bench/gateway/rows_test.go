//go:build docker

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/bench/internal/benchtest"
	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// TestEveryRowGoesThroughItsService stops the processes that the work of each row is
// said to go through, one after the other, and sees that the row waits for each. Then
// it puts the gateway under a small load. That nothing is left on the engine is
// checked by close.
func TestEveryRowGoesThroughItsService(t *testing.T) {
	image := enginetest.Image(t, "busybox")
	b, err := open(t.Context(), benchtest.Build(t, "./cmd/berth", "./cmd/berth-provider-docker"), image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	sandboxd, gateway, plugin := []int{b.sandboxd.cmd.Process.Pid}, []int{b.berth.cmd.Process.Pid}, []int{b.berth.pluginPID()}
	guests := b.guests(t)
	check := func(t *testing.T, rows []row) {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				waits := func(column, process string, pids []int) {
					t.Helper()
					do, ok := r.by[column]
					if !ok {
						return
					}
					benchtest.Waits(t, process, pids, func() error {
						taken, err := do(t.Context(), b, 1)
						if column == columnBerth && taken.note != "" {
							t.Errorf("it went otherwise than it should: %q", taken.note)
						}
						return err
					})
				}
				waits(columnSandboxd, "sandboxd", sandboxd)
				waits(columnBerth, "the gateway", gateway)
				waits(columnBerth, "the plugin", plugin)
				if !r.newGuest { // which cannot be stopped before it is there
					waits(columnBerth, "the guest", guests)
				}
			})
		}
	}
	t.Run("client", func(t *testing.T) { check(t, clientRows()) })
	t.Run("plain HTTP", func(t *testing.T) { check(t, wireRows()) })
	t.Run("load", func(t *testing.T) {
		before, err := b.containers(t.Context(), b.provider)
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.endure(t.Context(), load{sessions: 6, callers: 3, duration: 2 * time.Second})
		if err != nil || e.failed != nil {
			t.Fatal(err, e.failed)
		}
		var report bytes.Buffer
		e.print(&report)
		t.Log(report.String())
		for kind, samples := range map[string]int{"open": 6, "purge": 6} {
			if n := len(e.kinds[kind]); n != samples {
				t.Errorf("%s was done %d times, want %d", kind, n, samples)
			}
		}
		for _, kind := range loadKinds {
			if !strings.Contains(report.String(), "\n| "+kind+" | ") {
				t.Errorf("the report tells nothing of %s", kind)
			}
		}
		for _, m := range e.memory {
			if m.gateway == 0 || m.plugin == 0 {
				t.Errorf("no memory of a process was found, %s", m.when)
			}
		}
		after, err := b.containers(t.Context(), b.provider)
		if err != nil || len(after) != len(before) {
			t.Errorf("%d containers before the load, and %d after it (error %v)", len(before), len(after), err)
		}
	})
}

// guests are the processes of the guests in the gateway's workspaces. The init of each
// comes before the server, which it would have go on.
func (b *bench) guests(t *testing.T) (pids []int) {
	t.Helper()
	ids, err := b.containers(t.Context(), b.provider)
	if err != nil || len(ids) == 0 {
		t.Fatalf("containers of the gateway: %v (error %v)", ids, err)
	}
	for _, id := range ids {
		for _, role := range []string{" init ", " serve "} {
			one, err := proc.InContainer(t.Context(), b.engine, id, "berth-guest", role)
			if err != nil || len(one) != 1 {
				t.Fatalf("processes of the guest's%s: %v, %v", role, one, err)
			}
			pids = append(pids, one...)
		}
	}
	return pids
}
