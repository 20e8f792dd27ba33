package faults_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// A hundred callers of a plugin that takes 3 s to start make one process; one who
// leaves after 1 s has left by 1.2 s; a status takes less than 10 ms all the while.
func TestManyCallersOfASlowStart(t *testing.T) {
	promptly(t, 0, "too long", func() time.Duration {
		h := newHost(t, []string{faults.Slow})
		ws, err := h.Workspace(faults.Slow)
		if err != nil {
			t.Fatal(err)
		}
		var slowest, left time.Duration
		var most int
		began, over := time.Now(), make(chan struct{})
		var watchers, callers sync.WaitGroup
		watchers.Go(func() {
			for {
				asked := time.Now()
				h.Providers()
				slowest = max(slowest, time.Since(asked))
				most = max(most, len(faults.Running(t, plugins.Path(faults.Slow))))
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := ask(ctx, ws, "ping"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who leaves got %v", err)
			}
			left = time.Since(began)
		})
		var mu sync.Mutex
		pids := map[string]bool{}
		for range 100 {
			callers.Go(func() {
				pid, err := ask(t.Context(), ws, "pid")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				pids[pid] = true
			})
		}
		callers.Wait()
		if took := time.Since(began); took < 3*time.Second {
			t.Errorf("it took %v only: this test shows nothing", took)
		}
		close(over)
		watchers.Wait()
		if len(pids) != 1 || most != 1 {
			t.Errorf("pids %v, %d processes at once", pids, most)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		return max(0, left-1200*time.Millisecond) + max(0, slowest-10*time.Millisecond)
	})
}

// Each provider has its own time to start in. After 5 s without a handshake the log
// says what is waited for.
func TestASlowStartIsToldAndBounded(t *testing.T) {
	t.Parallel()
	var log sink
	h := newHost(t, nil, log.configure, func(c *host.Config) {
		c.Providers = map[string]host.Provider{
			"patient":   {Plugin: faults.Silent, StartTimeout: 7 * time.Second},
			"impatient": {Plugin: faults.Silent, StartTimeout: 500 * time.Millisecond},
		}
	})
	_, err := h.Check(t.Context(), "impatient")
	if plug := asPluginError(t, err); plug.Op != "start" || !strings.Contains(plug.Reason, "not ready within 500ms; it waited for the handshake line") {
		t.Errorf("%+v", plug)
	}
	began := time.Now()
	checked := make(chan error, 1)
	go func() { _, err := h.Check(t.Context(), "patient"); checked <- err }()
	poll(t, "it is told", func() bool { return len(log.records(t, "plugin is slow to start")) > 0 })
	told := log.records(t, "plugin is slow to start")[0]
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("told after %v", took)
	}
	if told["waiting_for"] != "the handshake line on the plugin's stdout" || told["pid"] == 0 {
		t.Errorf("%v", told)
	}
	select {
	case err := <-checked:
		t.Errorf("the start was over when it was told: %v", err)
		return
	default:
	}
	if plug := asPluginError(t, <-checked); !strings.Contains(plug.Reason, "not ready within 7s") {
		t.Errorf("%+v", plug)
	}
}

// A start that takes too long is no timeout of the command that waits for it, which
// has none, or one that has not passed: the command was never sent.
func TestASlowStartIsNoTimeoutOfACommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, filepath.Base(plugins.Path(faults.Good)))
	if err := os.Link(plugins.Path(faults.Good), binary); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, nil, func(c *host.Config) {
		c.PluginDirs = []string{dir}
		c.Providers[faults.Good] = host.Provider{StartTimeout: 500 * time.Millisecond}
	})
	ws := open(t, h, faults.Good)
	if err := os.Remove(binary); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := syscall.Kill(status(t, h, faults.Good).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	poll(t, "its end is known", func() bool { return status(t, h, faults.Good).PID == 0 })
	for _, timeout := range []time.Duration{0, time.Hour} {
		_, err := ws.Run(t.Context(), workspace.Command{Args: []string{"true"}, Timeout: timeout})
		if plug := asPluginError(t, err); errors.As(err, new(*workspace.TimeoutError)) || plug.Op != "start" || plug.MayHaveExecuted {
			t.Errorf("with a timeout of %v: %v", timeout, err)
		}
	}
	_, err := ws.Run(t.Context(), workspace.Command{Args: []string{"true"}, Timeout: 100 * time.Millisecond})
	if !errors.As(err, new(*workspace.TimeoutError)) { // while it waits for a start
		t.Errorf("with a timeout that passes: %v", err)
	}
}

// A temporary folder whose name leaves no room for a socket is no hindrance.
func TestALongTemporaryFolder(t *testing.T) {
	long := filepath.Join(shortTemp(t), strings.Repeat("d", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	h := newHost(t, []string{faults.Good})
	if got := mustAsk(t, open(t, h, faults.Good), "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
}

// A plugin that lies in its handshake, or prints before it, does not start, and is
// told with what it said.
func TestLiesInTheHandshake(t *testing.T) {
	for name, want := range map[string]string{
		faults.PrintFirst:   `wrote "hello from a library" to stdout before the handshake`,
		faults.Garbage:      "to stdout before the handshake",
		faults.OtherVersion: "speaks protocol version 99, this host 1",
		faults.Elsewhere:    "not on a socket in the folder that it was given",
		faults.NoServer:     "does not serve gRPC on the socket of its handshake",
		faults.Nonsense:     "its answer to describe",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, []string{name, faults.Good})
			_, err := h.Check(t.Context(), name)
			if plug := asPluginError(t, err); plug.Op != "start" || plug.MayHaveExecuted || !strings.Contains(plug.Reason, want) {
				t.Errorf("%+v, want %q", plug, want)
			}
			if left := faults.Running(t, plugins.Path(name)); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
			if got := mustAsk(t, open(t, h, faults.Good), "ping"); got != "pong" {
				t.Errorf("another provider: %q", got)
			}
		})
	}
}
