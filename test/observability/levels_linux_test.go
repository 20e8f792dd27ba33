package observability_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// spoken has the plugin log a record of each level, and returns the levels that came
// to the host's log.
func spoken(t *testing.T, ws workspace.Workspace, log *lines) string {
	t.Helper()
	if err := ws.WriteFile(t.Context(), speak, nil); err != nil {
		t.Fatal(err)
	}
	log.reset()
	if _, err := ws.Stat(t.Context(), speak); err != nil {
		t.Fatal(err)
	}
	log.await(t, "a record of error") // the last one
	var came []string
	for line := range strings.Lines(log.String()) {
		if _, level, ok := strings.Cut(line, "a record of "); ok {
			came = append(came, strings.TrimSuffix(strings.Fields(level)[0], ":"))
		}
	}
	return strings.Join(came, " ")
}

const (
	all     = "trace debug info warn error"
	inform  = "info warn error"
	warning = "warn error"
)

func TestLevelsOfARunningPlugin(t *testing.T) {
	var log lines
	h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.Logger = log.logger(hclog.Info) })
	want := func(levels string) {
		t.Helper()
		if got := spoken(t, ws, &log); got != levels {
			t.Errorf("records of %s came, want %s", got, levels)
		}
	}
	set := func(provider string, level hclog.Level) {
		t.Helper()
		if err := h.SetLogLevel(provider, level); err != nil {
			t.Error(err)
		}
	}
	set(current, hclog.Trace) // before it runs
	want(all)
	set(current, hclog.Warn)
	want(warning)
	set(current, hclog.Trace)
	want(all)

	// The next process has it too.
	status := h.Providers()[0]
	p, err := os.FindProcess(status.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return h.Providers()[0].PID != status.PID }, func() string { return "the plugin did not end" })
	want(all)

	set("", hclog.Warn) // has a level of its own
	want(all)
	set(current, hclog.NoLevel)
	want(warning)
	set("", hclog.Trace)
	want(all)
	set("", hclog.Info)
	want(inform)

	if err := h.SetLogLevel("nobody", hclog.Info); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("of a provider that there is not: %v", err)
	}
	for _, level := range []hclog.Level{-1, hclog.Off + 1} {
		if err := h.SetLogLevel(current, level); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("level %d: %v", level, err)
		}
	}
	if err := h.SetLogLevel("", hclog.NoLevel); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("no level of the host: %v", err)
	}
}

// TestLevelsOfALoggerThatIsShared: it is the embedder's, and stays as it is.
func TestLevelsOfALoggerThatIsShared(t *testing.T) {
	var log lines
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: &log})
	h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.Logger = logger })
	if err := h.SetLogLevel(current, hclog.Debug); err == nil || !strings.Contains(err.Error(), "IndependentLevels") {
		t.Errorf("a level below the logger's: %v", err)
	}
	if got := logger.GetLevel(); got != hclog.Info {
		t.Errorf("the embedder's logger is at %s now", got)
	}
	if got := spoken(t, ws, &log); got != inform {
		t.Errorf("records of %s came", got)
	}
	if err := h.SetLogLevel(current, hclog.Warn); err != nil {
		t.Error(err)
	}
	if got := spoken(t, ws, &log); got != warning {
		t.Errorf("records of %s came", got)
	}
	if got := logger.GetLevel(); got != hclog.Info {
		t.Errorf("the embedder's logger is at %s now", got)
	}
}

// TestLevelsOfAnOlderPlugin are the host's alone, which it says.
func TestLevelsOfAnOlderPlugin(t *testing.T) {
	var log lines
	h, ws := open(t, older, func(c *host.Config, _ *host.Provider) { c.Logger = log.logger(hclog.Info) })
	if got := spoken(t, ws, &log); got != inform {
		t.Errorf("records of %s came", got)
	}
	err := h.SetLogLevel(older, hclog.Warn)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("set: %v, want that it is unsupported", err)
	}
	if got := spoken(t, ws, &log); got != warning {
		t.Errorf("records of %s came", got)
	}
}

// TestLevelSetDuringAStart holds, whichever comes first.
func TestLevelSetDuringAStart(t *testing.T) {
	for range 5 {
		var log lines
		h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.Logger = log.logger(hclog.Info) })
		started := make(chan error, 1)
		go func() {
			_, err := ws.WorkingDir(t.Context())
			started <- err
		}()
		waitFor(t, func() bool { return h.Providers()[0].State != "stopped" }, func() string { return "the plugin is not started" })
		if err := h.SetLogLevel(current, hclog.Trace); err != nil {
			t.Error(err)
		}
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		// The start's own word may come just after the call that it was for.
		waitFor(t, func() bool { return spoken(t, ws, &log) == all }, func() string { return "the level does not hold" })
	}
}
