package faults_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// A stop with one second of a plugin that is frozen returns within two, and the
// process is gone.
func TestAFrozenPluginIsStoppedInTime(t *testing.T) {
	promptly(t, 2*time.Second, "a stop with 1 s", func() time.Duration {
		h := newHost(t, []string{faults.Good})
		open(t, h, faults.Good)
		pid := status(t, h, faults.Good).PID
		faults.Freeze(t, pid)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		if alive(pid) {
			t.Error("it is still there")
		}
		return took
	})
}

// Two intervals of liveness after a plugin froze its status says so.
func TestAFrozenPluginIsTold(t *testing.T) {
	const interval = time.Second
	const tick = interval / 10
	h := newHost(t, []string{faults.Good}, func(c *host.Config) { c.Deadlines.Liveness = interval })
	promptly(t, 2*interval+tick, "the change of its state", func() time.Duration {
		open(t, h, faults.Good)
		poll(t, "running", func() bool { return status(t, h, faults.Good).State == "running" })
		pid := status(t, h, faults.Good).PID
		began := time.Now()
		faults.Freeze(t, pid)
		poll(t, "another state", func() bool { return status(t, h, faults.Good).State != "running" })
		took := time.Since(began)
		poll(t, "it is killed", func() bool { return !alive(pid) })
		poll(t, "its end is told", func() bool {
			return strings.Contains(status(t, h, faults.Good).LastError, "did not answer 3 health checks")
		})
		return took
	})
}

// A stop lets a call that ends in time succeed, and gives any other a typed error.
func TestAStopLetsCallsFinish(t *testing.T) {
	for name, test := range map[string]struct {
		call, drain time.Duration
		cut         bool
	}{
		"in time":   {call: time.Second, drain: 3 * time.Second},
		"too short": {call: time.Minute, drain: 200 * time.Millisecond, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, []string{faults.Good})
			ws := open(t, h, faults.Good)
			pid := status(t, h, faults.Good).PID
			called := make(chan error, 1)
			go func() { called <- order(t.Context(), ws, "sleep/"+test.call.String()) }()
			poll(t, "the call is under way", func() bool { return status(t, h, faults.Good).InFlight == 1 })
			ctx, cancel := context.WithTimeout(t.Context(), test.drain)
			defer cancel()
			err, callErr := h.Shutdown(ctx), <-called
			switch {
			case !test.cut && (err != nil || callErr != nil):
				t.Errorf("stop: %v; the call: %v", err, callErr)
			case test.cut:
				if plug := asPluginError(t, callErr); !errors.Is(err, context.DeadlineExceeded) || !plug.MayHaveExecuted || plug.PID != pid {
					t.Errorf("stop: %v; the call: %+v", err, plug)
				}
			}
			if alive(pid) {
				t.Error("it is still there")
			}
		})
	}
}

// A call whose plugin is killed fails at once, and says which plugin that was, how
// it ended, what it said last, and that the call may have been carried out.
func TestACrashIsTold(t *testing.T) {
	h := newHost(t, []string{faults.Good})
	promptly(t, 100*time.Millisecond, "the error", func() time.Duration {
		ws := open(t, h, faults.Good)
		mustAsk(t, ws, "stderr/these were the last words")
		pid := status(t, h, faults.Good).PID
		called := make(chan error, 1)
		go func() { called <- order(t.Context(), ws, "sleep/1m") }()
		poll(t, "the call is under way", func() bool { return status(t, h, faults.Good).InFlight == 1 })
		began := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		err := <-called
		took := time.Since(began)
		plug := asPluginError(t, err)
		if plug.Provider != faults.Good || plug.PID != pid || plug.ExitStatus != "signal: killed" || !plug.MayHaveExecuted ||
			!strings.Contains(strings.Join(plug.Stderr, "\n"), "these were the last words") {
			t.Errorf("%+v", plug)
		}
		return took
	})
}

// A call that was never sent says that it was not carried out.
func TestACallThatWasNotSentIsTold(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, filepath.Base(plugins.Path(faults.Good)))
	if err := os.Link(plugins.Path(faults.Good), binary); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, []string{faults.Good}, func(c *host.Config) { c.PluginDirs = []string{dir} })
	ws := open(t, h, faults.Good)
	// The next start of it fails.
	if err := os.Remove(binary); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho not today >&2\nexit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(status(t, h, faults.Good).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	poll(t, "its end is known", func() bool { return status(t, h, faults.Good).PID == 0 })
	plug := asPluginError(t, order(t.Context(), ws, "ping"))
	if plug.MayHaveExecuted || plug.Op != "start" || plug.ExitStatus != "exit status 4" || !strings.Contains(strings.Join(plug.Stderr, "\n"), "not today") {
		t.Errorf("%+v", plug)
	}
}

// A call that is answered with garbage fails alone.
func TestAnAnswerThatIsGarbage(t *testing.T) {
	h := newHost(t, []string{faults.Good})
	ws := open(t, h, faults.Good)
	for range 3 {
		plug := asPluginError(t, func() error { _, err := ask(t.Context(), ws, "garbage"); return err }())
		if plug.Provider != faults.Good || plug.ExitStatus != "" || !strings.Contains(plug.Reason, "unmarshal") {
			t.Errorf("%+v", plug)
		}
		if got := mustAsk(t, ws, "ping"); got != "pong" {
			t.Errorf("ping: %q", got)
		}
	}
	if st := status(t, h, faults.Good); st.Restarts != 0 || st.State != "running" {
		t.Errorf("%+v", st)
	}
}

// A plugin that panics is told with its panic, and is started again.
func TestAPanicInAHandlerIsTold(t *testing.T) {
	h := newHost(t, []string{faults.Good})
	ws := open(t, h, faults.Good)
	plug := asPluginError(t, order(t.Context(), ws, "panic/boom"))
	if plug.ExitStatus != "exit status 2" || !strings.Contains(strings.Join(plug.Stderr, "\n"), "panic in a handler: boom") || !plug.MayHaveExecuted {
		t.Errorf("%+v", plug)
	}
	if got := mustAsk(t, ws, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
}

// A child that holds the plugin's stderr hides neither its end nor a stop of it, and
// goes with it.
func TestAGrandchildHoldsStderr(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *host.Host, workspace.Workspace){
		"exits": func(t *testing.T, _ *host.Host, ws workspace.Workspace) {
			if err := order(t.Context(), ws, "exit/0"); err == nil {
				t.Error("it did not end")
			}
		},
		"is stopped": func(t *testing.T, h *host.Host, _ workspace.Workspace) {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			promptly(t, 200*time.Millisecond, "its end", func() time.Duration {
				h := newHost(t, []string{faults.Good})
				ws := open(t, h, faults.Good)
				child := atoi(t, mustAsk(t, ws, "hold-stderr"))
				pid := status(t, h, faults.Good).PID
				began := time.Now()
				end(t, h, ws)
				poll(t, "the end is seen", func() bool { return status(t, h, faults.Good).PID == 0 })
				took := time.Since(began)
				poll(t, "the group is empty", func() bool { return !alive(child) && groupIsEmpty(pid) })
				return took
			})
		})
	}
}
