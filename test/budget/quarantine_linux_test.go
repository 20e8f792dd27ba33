package budget

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// asQuarantine is the error of a call that was refused at once.
func asQuarantine(t testing.TB, call func() error) *host.QuarantineError {
	t.Helper()
	err := call()
	var q *host.QuarantineError
	if !errors.As(err, &q) {
		t.Fatalf("%T: %v", err, err)
	}
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || plug.MayHaveExecuted || q.Temporary() {
		t.Errorf("%+v", plug)
	}
	return q
}

// die has a plugin end by itself.
func die(t testing.TB, h *host.Host, ws workspace.Workspace, provider string) {
	t.Helper()
	pid := status(t, h, provider).PID
	var plug *workspace.PluginError
	if err := order(t.Context(), ws, "exit/7"); !errors.As(err, &plug) || plug.PID == 0 {
		t.Fatalf("it did not end: %v", err)
	}
	poll(t, "its end is known", func() bool { return status(t, h, provider).PID != pid })
}

// A plugin that has died once more than it may is not started again: calls fail at
// once with why, since when and what to do; others are as before; a reload ends it.
func TestAPluginThatDiesTooOftenIsInQuarantine(t *testing.T) {
	const restarts = 3
	h := newHost(t, map[string]host.Budget{faults.Good: {Restarts: restarts}, faults.Lifeline: {}})
	ws, other := open(t, h, faults.Good), open(t, h, faults.Lifeline)
	for range restarts {
		die(t, h, ws, faults.Good)
		must(t, order(t.Context(), ws, "ping")) // which starts it
	}
	before := time.Now().Add(-time.Second)
	die(t, h, ws, faults.Good)
	for range 3 {
		q := asQuarantine(t, func() error { return order(t.Context(), ws, "ping") })
		if q.Deaths != restarts+1 || q.Since.Before(before) || q.Since.After(time.Now()) || q.Last == nil {
			t.Errorf("%+v", q)
		}
		for _, part := range []string{"since " + q.Since.Format(time.RFC3339), "4 times within 10m0s", "budget of 3", "exit status 7", "berth reload good", "a new binary"} {
			if !strings.Contains(q.Error(), part) {
				t.Errorf("%q lacks %q", q, part)
			}
		}
	}
	st := status(t, h, faults.Good)
	if st.State != "quarantined" || st.PID != 0 || !strings.Contains(st.Quarantine, "4 times") || st.Restarts != restarts {
		t.Errorf("%+v", st)
	}
	if events := told(t, h, faults.Good, "quarantined"); len(events) != 1 || !strings.Contains(events[0], "exit status 7") {
		t.Errorf("%q", events)
	}
	must(t, order(t.Context(), other, "ping"))

	must(t, h.Reload(t.Context(), faults.Good))
	must(t, order(t.Context(), ws, "ping"))
	if st := status(t, h, faults.Good); st.State != "running" || st.Quarantine != "" {
		t.Errorf("%+v", st)
	}
	if events := told(t, h, faults.Good, "released"); len(events) != 1 {
		t.Errorf("%q", events)
	}
	// What led to it is forgotten.
	die(t, h, ws, faults.Good)
	must(t, order(t.Context(), ws, "ping"))
}

// Another binary ends a quarantine, without anybody who watches for it; so do those
// who ask while nothing has changed not.
func TestAnotherBinaryEndsAQuarantine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, filepath.Base(plugins.Path(faults.Good)))
	put := func(name string) {
		t.Helper()
		text, err := os.ReadFile(plugins.Path(name))
		must(t, err)
		must(t, os.WriteFile(binary+".new", text, 0o755)) //nolint:gosec // a program
		must(t, os.Rename(binary+".new", binary))
	}
	must(t, os.WriteFile(binary, []byte("#!/bin/sh\necho not today >&2\nexit 4\n"), 0o755)) //nolint:gosec // a program
	h := newHost(t, map[string]host.Budget{faults.Good: {Restarts: 2}}, func(c *host.Config) { c.PluginDirs = []string{dir} })
	ws, err := h.Workspace(faults.Good)
	must(t, err)
	for range 3 { // failed starts
		var plug *workspace.PluginError
		if err := order(t.Context(), ws, "ping"); !errors.As(err, &plug) || plug.ExitStatus != "exit status 4" {
			t.Fatal(err)
		}
	}
	for over := time.Now().Add(2500 * time.Millisecond); time.Now().Before(over); time.Sleep(100 * time.Millisecond) {
		asQuarantine(t, func() error { return order(t.Context(), ws, "ping") })
	}
	put(faults.Good)
	poll(t, "it is released", func() bool { return order(t.Context(), ws, "ping") == nil })
	if st := status(t, h, faults.Good); st.State != "running" || st.Quarantine != "" {
		t.Errorf("%+v", st)
	}
}

// What the host ends for its memory counts.
func TestBudgetKillsCount(t *testing.T) {
	t.Parallel()
	if withoutPrivileges(t) {
		return
	}
	h := newHost(t, map[string]host.Budget{faults.Good: {Memory: 96 * mib, Restarts: 1}})
	ws := open(t, h, faults.Good)
	for range 2 {
		_ = order(t.Context(), ws, "eat/200") // and be ended for it, now or soon
		pid := status(t, h, faults.Good).PID
		poll(t, "it is ended", func() bool { return pid == 0 || status(t, h, faults.Good).PID != pid })
	}
	q := asQuarantine(t, func() error { return order(t.Context(), ws, "ping") })
	if !strings.Contains(q.Error(), "its budget is 96 MiB") {
		t.Error(q)
	}
}

// A plugin that dies now and then is started again, and so is one without a budget
// of restarts.
func TestFewDeathsAreNoQuarantine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		budget host.Budget
		deaths int
	}{
		"three by default":  {deaths: 3},
		"unlimited":         {budget: host.Budget{Restarts: host.UnlimitedRestarts}, deaths: 6},
		"out of the window": {budget: host.Budget{Restarts: 1, RestartWindow: time.Nanosecond}, deaths: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, map[string]host.Budget{faults.Good: test.budget})
			ws := open(t, h, faults.Good)
			for range test.deaths {
				die(t, h, ws, faults.Good)
				must(t, order(t.Context(), ws, "ping"))
			}
			if st := status(t, h, faults.Good); st.Restarts != test.deaths || st.State != "running" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Swaps and idle stops are no deaths.
func TestEndsInOrderAreNoDeaths(t *testing.T) {
	h := newHost(t, map[string]host.Budget{faults.Good: {Restarts: 1}}, func(c *host.Config) {
		p := c.Providers[faults.Good]
		p.IdleTimeout = 50 * time.Millisecond
		c.Providers[faults.Good] = p
	})
	ws := open(t, h, faults.Good)
	for range 4 {
		must(t, h.Reload(t.Context(), faults.Good))
		must(t, order(t.Context(), ws, "ping"))
		poll(t, "it is idle", func() bool { return status(t, h, faults.Good).State == "stopped" })
	}
	// Nor is a start for which nobody waits any more.
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = h.Reload(ctx, faults.Good)
	}
	must(t, order(t.Context(), ws, "ping"))
	if st := status(t, h, faults.Good); st.Quarantine != "" {
		t.Errorf("%+v, %s", st, fmt.Sprint(told(t, h, faults.Good, "died")))
	}
}
