//go:build docker

package docker_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// use is what two processes have of the machine.
type use struct{ hostFiles, hostGoroutines, pluginFiles, pluginKiB int }

func measure(t testing.TB, h *host.Host) use {
	t.Helper()
	pid := h.Providers()[0].PID
	files := func(pid any) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%v/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	u := use{hostFiles: files("self"), hostGoroutines: runtime.NumGoroutine(), pluginFiles: files(pid)}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &u.pluginKiB); err != nil {
				t.Fatal(err)
			}
		}
	}
	return u
}

func TestManyRuns_LeaveNothing(t *testing.T) {
	b := newBed(t, "busybox", nil)
	ws := b.open(t)
	runs := func(n int) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range n / 8 {
					res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"echo", "x"}})
					if err != nil || string(res.Stdout) != "x\n" {
						t.Errorf("a run: %+v (error %v)", res, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	runs(400) // what is kept for the next runs is there now
	before := measure(t, b.host)
	runs(2000)
	// Some of what a run has ends just after it.
	var after use
	eventually(t, fmt.Sprintf("as little in use as before, %+v", before), func() bool {
		after = measure(t, b.host)
		return after.hostFiles <= before.hostFiles+4 && after.pluginFiles <= before.pluginFiles+4 &&
			after.hostGoroutines <= before.hostGoroutines+8 && after.pluginKiB <= before.pluginKiB+16<<10
	})
	t.Logf("before %+v, after %+v", before, after)
	// One connection carries them all.
	if n := strings.Count(output(t, ws, "ps -o args"), "berth-guest connect"); n != 1 {
		t.Errorf("there are %d connections to the guest, want 1", n)
	}
}
