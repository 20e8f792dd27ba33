package durable_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/durable"
)

// liveness has a frozen plugin killed within two seconds or so.
const liveness = 500 * time.Millisecond

// TestB3_CommandsOfAFrozenPluginRunInAYoungWorkspace: the plugin never handed them on,
// and the guest is hardly older than they are. It was there all the time, though, and
// knows that it has not heard of them.
func TestB3_CommandsOfAFrozenPluginRunInAYoungWorkspace(t *testing.T) {
	engine := durable.StartEngine(t, t.TempDir())
	h := opener(t, engine)(t, func(c *host.Config) { c.Deadlines.Liveness = liveness })
	ws, err := h.Workspace(durable.Name)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	note := func(id string) {
		t.Helper()
		res, err := ws.Run(t.Context(), workspace.Command{Script: `echo "$ID" >>ran; echo "$ID"; exit 3`, Env: map[string]string{"ID": id}})
		if err != nil || res.ExitCode != 3 || string(res.Stdout) != id+"\n" {
			t.Errorf("%s: %+v, %v", id, res, err)
		}
	}
	frozen := func(what string) {
		t.Helper()
		pid := h.Providers()[0].PID
		if pid == 0 {
			t.Fatalf("%s: no plugin is running", what)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var commands sync.WaitGroup
		for n := range 4 {
			id := fmt.Sprintf("%s %d", what, n)
			want = append(want, id)
			commands.Go(func() { note(id) })
		}
		commands.Wait()
		if h.Providers()[0].PID == pid {
			t.Errorf("%s: the plugin was not replaced", what)
		}
	}

	if _, err := ws.WorkingDir(t.Context()); err != nil { // it is created
		t.Fatal(err)
	}
	frozen("new")

	// Another guest is there when the plugin comes again, and says so with the first
	// command that it starts.
	kill(t, h)
	ref, _ := ws.Ref()
	if err := engine.Stop(ref.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.ReadFile(t.Context(), "ran"); err != nil {
		t.Fatal(err)
	}
	want = append(want, "first")
	note("first")
	frozen("again")

	data, err := ws.ReadFile(t.Context(), "ran")
	if err != nil {
		t.Fatal(err)
	}
	ran := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	slices.Sort(ran)
	slices.Sort(want)
	if !slices.Equal(ran, want) {
		t.Errorf("%q ran, want %q", ran, want)
	}
}
