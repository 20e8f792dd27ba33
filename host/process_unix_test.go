//go:build unix

package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func pid(t testing.TB, h *host.Host) int {
	t.Helper()
	pid := h.Providers()[0].PID
	if pid == 0 {
		t.Fatal("no plugin runs")
	}
	return pid
}

func kill(t testing.TB, h *host.Host) {
	t.Helper()
	if err := syscall.Kill(pid(t, h), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestL2_APluginKilledInMidCreateMakesOneWorkspace(t *testing.T) {
	const step = 4 * time.Millisecond
	for point := range slowSteps {
		t.Run(strconv.Itoa(point), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			h := newProcesses(t, map[string]host.Provider{"slow": {Config: map[string]any{"root": root, "step_ms": int(step.Milliseconds())}}})
			ws, err := h.Workspace("slow")
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 3)
			for range cap(errs) {
				go func() { _, err := ws.Stat(t.Context(), "."); errs <- err }()
			}
			reached := func() bool {
				found, _ := filepath.Glob(filepath.Join(root, "berth-*", strconv.Itoa(point)))
				return len(found) > 0
			}
			waitFor(t, "the point of the create", reached)
			kill(t, h)
			for range cap(errs) {
				// The last step may have been answered before the kill.
				var plug *workspace.PluginError
				if err := <-errs; err != nil && (!errors.As(err, &plug) || plug.PID == 0 || !strings.Contains(plug.ExitStatus, "killed") || !plug.MayHaveExecuted) {
					t.Errorf("a waiter got %v", err)
				}
			}
			if _, err := ws.Stat(t.Context(), "."); err != nil {
				t.Errorf("the next operation: %v", err)
			}
			entries, err := os.ReadDir(root)
			if err != nil || len(entries) != 1 {
				t.Errorf("%d workspaces, %v", len(entries), err)
			}
			if ref, _ := ws.Ref(); len(entries) == 1 && ref.ID != entries[0].Name() {
				t.Errorf("ref %s of %s", ref, entries[0].Name())
			}
		})
	}
}

func stateProvider() map[string]host.Provider { return map[string]host.Provider{"state": {}} }

func newStateProcess(t testing.TB) (*host.Host, workspace.Workspace) {
	t.Helper()
	h := newProcesses(t, stateProvider())
	ws, err := h.Workspace("state")
	if err != nil {
		t.Fatal(err)
	}
	return h, ws
}

func TestB2_AReadOfAPluginThatDiedIsMadeAgain(t *testing.T) {
	h, ws := newStateProcess(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "a/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		kill(t, h)
		if info, err := ws.Stat(ctx, "a/f"); err != nil || info.Size != 1 {
			t.Errorf("%+v, %v", info, err)
		}
		kill(t, h)
		if list, err := ws.ReadDir(ctx, "a"); err != nil || len(list) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		kill(t, h)
		if path, err := ws.RealPath(ctx, "a/../a/f"); err != nil || path != "/a/f" {
			t.Errorf("%q, %v", path, err)
		}
	}
	if st := h.Providers()[0]; st.Restarts == 0 || st.LastError == "" {
		t.Errorf("%+v", st)
	}
}

func TestB2_AReadGoesOnWhereThePluginDied(t *testing.T) {
	h, ws := newStateProcess(t)
	ctx := t.Context()
	data := randomBytes(16 << 20)
	if err := ws.WriteFile(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		between func(*testing.T)
		opts    workspace.ReadOptions
		want    []byte
		err     bool
	}{
		"unchanged": {want: data},
		"a part":    {opts: workspace.ReadOptions{Offset: 1000, Length: 12 << 20}, want: data[1000 : 1000+12<<20]},
		"changed":   {between: func(t *testing.T) { rewrite(t, ws, "f", append(data, 'x')) }, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ws.WriteFile(ctx, "f", data); err != nil {
				t.Fatal(err)
			}
			r, err := ws.Open(ctx, "f", test.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got := make([]byte, 1<<20)
			if _, err := io.ReadFull(r, got); err != nil {
				t.Fatal(err)
			}
			kill(t, h)
			if test.between != nil {
				test.between(t)
			}
			rest, err := io.ReadAll(r)
			if test.err {
				if err == nil {
					t.Error("a file that changed was read as if it had not")
				}
				return
			}
			if err != nil || !bytes.Equal(slices.Concat(got, rest), test.want) {
				t.Errorf("%d bytes, %v", len(got)+len(rest), err)
			}
		})
	}
}

// rewrite writes a file after a kill, which the host may not have seen yet: then
// the write is the call that fails for it.
func rewrite(t *testing.T, ws workspace.Workspace, file string, data []byte) {
	t.Helper()
	err := ws.WriteFile(t.Context(), file, data)
	var plug *workspace.PluginError
	if errors.As(err, &plug) {
		err = ws.WriteFile(t.Context(), file, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestB2_AWriteOfAPluginThatDiedFailsAndChangesNothing(t *testing.T) {
	h, ws := newStateProcess(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	w, err := ws.Create(ctx, "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(randomBytes(4 << 20)); err != nil {
		t.Fatal(err)
	}
	kill(t, h)
	begun := time.Now()
	err = w.Close()
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || plug.Provider != "state" || !strings.Contains(plug.ExitStatus, "killed") {
		t.Error(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if err := w.Close(); !errors.As(err, &plug) {
		t.Errorf("a second close: %v", err)
	}
	if got, err := ws.ReadFile(ctx, "f"); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestB3_HandlesLiveOnAndAnotherHostAttaches(t *testing.T) {
	dataDir := t.TempDir()
	same := func(c *host.Config) { c.DataDir = dataDir }
	h := newProcesses(t, stateProvider(), same)
	ws, err := h.Workspace("state", workspace.WithName("notes"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	kill(t, h)
	rewrite(t, ws, "g", []byte("after"))
	other := newProcesses(t, stateProvider(), same)
	again, err := other.Attach(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.ReadFile(ctx, "f"); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
	if err := other.Destroy(ctx, ref); err != nil {
		t.Error(err)
	}
	if err := other.Destroy(ctx, ref); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := ws.ReadFile(ctx, "f"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("after the destroy: %v", err)
	}
}

func TestB1_APluginThatHangsIsEndedAndTheNextCallGoesOn(t *testing.T) {
	// One that is only slow, on a loaded machine, must not be taken for it.
	h := newProcesses(t, stateProvider(), func(c *host.Config) { c.Deadlines.Liveness = time.Second })
	ws, err := h.Workspace("state")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid(t, h), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A process that is busy stops a moment after the signal.
	for i := 0; err == nil && i < 1000; i++ {
		err = ws.MkdirAll(ctx, fmt.Sprintf("d%d", i))
	}
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || !plug.MayHaveExecuted {
		t.Error(err)
	}
	if got, err := ws.ReadFile(ctx, "f"); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestC10_AReaderThatPausesSlowsNoOtherCall is the property of a reader paused
// for long with much pending, in a shorter time.
func TestC10_AReaderThatPausesSlowsNoOtherCall(t *testing.T) {
	_, ws := newStateProcess(t)
	ctx := t.Context()
	data := randomBytes(64 << 20)
	if err := ws.WriteFile(ctx, "big", data); err != nil {
		t.Fatal(err)
	}
	r, err := ws.Open(ctx, "big", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("small-%d-%d", worker, i)
				if err := ws.WriteFile(ctx, name, []byte(name)); err != nil {
					t.Error(err)
				}
				if got, err := ws.ReadFile(ctx, name); err != nil || string(got) != name {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestB7_SecretsStayOutOfLogsAndErrors(t *testing.T) {
	t.Setenv("BERTH_TEST_SECRET", "host-secret-value")
	t.Setenv("SLOW_TOKEN", "by-convention")
	t.Setenv("SLOW_INHERITED", "inherited")
	var mu sync.Mutex
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})})
	config := map[string]any{"root": t.TempDir(), "password": "p4ssw0rd-p4ssw0rd"}
	yes := true
	h := newProcesses(t, map[string]host.Provider{
		"bare":    {Plugin: "slow", Config: config},
		"trusted": {Plugin: "slow", Config: config, ConventionalEnv: &yes, InheritEnv: []string{"SLOW_INHERITED"}},
	}, func(c *host.Config) { c.Logger = logger })
	for provider, want := range map[string]map[string]bool{
		"bare":    {"BERTH_TEST_SECRET": false, "SLOW_TOKEN": false, "PATH": true},
		"trusted": {"BERTH_TEST_SECRET": false, "SLOW_TOKEN": true, "SLOW_INHERITED": true, "PATH": true},
	} {
		ws, err := h.Workspace(provider)
		if err != nil {
			t.Fatal(err)
		}
		for name, there := range want {
			_, err := ws.Stat(t.Context(), "env:"+name)
			if there != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s: %v", provider, name, err)
			}
		}
	}
	if st := h.Providers()[1]; len(st.Environment) != 2 {
		t.Errorf("environment %q", st.Environment)
	}
	waitFor(t, "the plugin's log", func() bool { mu.Lock(); defer mu.Unlock(); return strings.Contains(log.String(), "configured") })
	mu.Lock()
	defer mu.Unlock()
	for _, secret := range []string{"p4ssw0rd", "host-secret", "by-convention"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %q: %s", secret, log.String())
		}
	}
}

func TestSchemaAndCheck(t *testing.T) {
	h := newProcesses(t, map[string]host.Provider{
		"slow":    {},
		"missing": {Plugin: "docker"},
		"wrong":   {Plugin: "slow", Config: map[string]any{"step_ms": "s3cret"}},
	})
	schema, err := h.Schema(t.Context(), "slow")
	if err != nil || !bytes.Contains(schema, []byte("step_ms")) {
		t.Errorf("%s, %v", schema, err)
	}
	st, err := h.Check(t.Context(), "slow")
	if err != nil || st.State != "running" || st.PID == 0 || st.Version != "test" || st.Path == "" || st.Plugin != "slow" {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = h.Check(t.Context(), "missing")
	if err == nil || !strings.Contains(err.Error(), pluginDir(t)) {
		t.Errorf("a missing plugin: %v", err)
	}
	_, err = h.Check(t.Context(), "wrong")
	var config *host.ConfigError
	if !errors.As(err, &config) || config.Key != "providers.wrong.config.step_ms" || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a wrong configuration: %v", err)
	}
	if _, err := h.Schema(t.Context(), "docker"); err == nil || !strings.Contains(err.Error(), "docker") {
		t.Errorf("the schema of a missing plugin: %v", err)
	}
	if list := h.Providers(); len(list) != 3 || list[0].Name != "missing" || list[0].LastError == "" {
		t.Errorf("%+v", list)
	}
}

func TestACancelledCallerOfAStartLeaves(t *testing.T) {
	h, ws := newStateProcess(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ws.Stat(ctx, "f"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st := h.Providers()[0].State; st != "stopped" {
		t.Errorf("a caller that had gone started a plugin: %s", st)
	}
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data)
	return data
}
