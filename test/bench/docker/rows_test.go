//go:build docker

package main

import (
	"cmp"
	"testing"

	"github.com/berth-dev/berth/test/bench/internal/benchtest"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// TestEveryRowGoesThroughPluginAndGuest stops first the plugin process and then
// the guest, and sees that the row waits for each.
func TestEveryRowGoesThroughPluginAndGuest(t *testing.T) {
	image := enginetest.Image(t, "busybox")
	b, err := open(t.Context(), benchtest.Build(t, "./cmd/berth-provider-docker"), image)
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
	benchtest.Waits(t, name, processes(work), work.do)
	if work.after != nil {
		if err := work.after(); err != nil {
			t.Error(err)
		}
	}
}
