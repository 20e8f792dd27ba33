package state_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

func newHost(t testing.TB, config host.Config) *host.Host {
	t.Helper()
	config.Logger = hclog.NewNullLogger()
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// pluginDir is a folder in which this test binary goes by the plugin's name.
func pluginDir(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "berth-provider-state"+filepath.Ext(self))
	if filepath.Ext(self) == ".test" {
		binary = filepath.Join(dir, "berth-provider-state")
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pid(h *host.Host) int {
	for _, p := range h.Providers() {
		if p.Name == "notes" {
			return p.PID
		}
	}
	return 0
}

// options are the suite's hooks for hosts of one configuration.
func options(t *testing.T, configure func(store map[string]any) host.Config, store string) conformance.Options {
	main := func(extra ...any) host.Config {
		config := map[string]any{"store": store}
		for i := 0; i < len(extra); i += 2 {
			config[extra[i].(string)] = extra[i+1]
		}
		return configure(config)
	}
	h := newHost(t, main())
	recreate := func(t testing.TB, other *host.Host, ref workspace.Ref) {
		option := workspace.WithName(ref.ID)
		if workspace.IsToken(ref.ID) {
			option = workspace.WithToken(ref.ID)
		}
		ws, err := other.Workspace("notes", option)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ws.WorkingDir(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return conformance.Options{
		Host: h, Provider: "notes",
		OtherHost:    func(t testing.TB) workspace.Host { return newHost(t, main()) },
		Started:      func(h workspace.Host) bool { return h.(*host.Host).Providers()[0].State != "stopped" },
		Reconfigured: func(t testing.TB) workspace.Host { return newHost(t, main("max_file_size", "1m")) },
		Replace: func(t testing.TB, ref workspace.Ref) {
			if err := h.Destroy(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			recreate(t, h, ref)
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			config := main()
			config.Providers["theirs"] = config.Providers["notes"]
			delete(config.Providers, "notes")
			ws, err := newHost(t, config).Workspace("theirs", workspace.WithName("their-own"))
			if err != nil {
				t.Fatal(err)
			}
			if err := ws.WriteFile(t.Context(), "f", nil); err != nil {
				t.Fatal(err)
			}
			return "their-own", workspace.Ref{Provider: "notes", ID: "their-own"}
		},
	}
}

func TestContract_FileInThisProcess(t *testing.T) {
	conformance.Test(t, options(t, func(config map[string]any) host.Config {
		return host.Config{Providers: map[string]host.Provider{"notes": {InProcess: state.Plugin("test"), Config: config}}}
	}, "file:"+filepath.Join(t.TempDir(), "state.db")))
}

func TestContract_FileThroughThePluginProcess(t *testing.T) {
	dir := pluginDir(t)
	opts := options(t, func(config map[string]any) host.Config {
		return host.Config{
			PluginDirs: []string{dir},
			Providers:  map[string]host.Provider{"notes": {Plugin: "state", Config: config}},
		}
	}, "file:"+filepath.Join(t.TempDir(), "state.db"))
	opts.Restart = func(t testing.TB) { kill(t, opts.Host.(*host.Host)) }
	conformance.Test(t, opts)
}

func TestContract_Memory(t *testing.T) {
	opts := options(t, func(config map[string]any) host.Config {
		return host.Config{Providers: map[string]host.Provider{"notes": {InProcess: state.Plugin("test"), Config: config}}}
	}, "memory")
	// Another host has another memory: what it would have to share is not there.
	opts.OtherHost, opts.Started, opts.Reconfigured, opts.Elsewhere = nil, nil, nil, nil
	status, err := opts.Host.(*host.Host).Check(t.Context(), "notes")
	if err != nil {
		t.Fatal(err)
	}
	if !status.Ephemeral || len(status.Deviations) == 0 {
		t.Fatalf("memory is not announced as ephemeral and deviating: %+v", status)
	}
	for _, d := range status.Deviations {
		if !strings.HasPrefix(d.Rule, "B") { // of the boundary, which the suite does not check
			opts.Deviations = append(opts.Deviations, sdk.Deviation{Rule: d.Rule, Reason: d.Reason})
		}
	}
	conformance.Test(t, opts)
}

func TestMemory_RefsAreUnavailableAfterACrash(t *testing.T) {
	h := newHost(t, host.Config{
		PluginDirs: []string{pluginDir(t)},
		Providers:  map[string]host.Provider{"notes": {Plugin: "state", Config: map[string]any{"store": "memory"}}},
	})
	open := func() workspace.Workspace {
		ws, err := h.Workspace("notes")
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.WriteFile(t.Context(), "f", []byte("x")); err != nil {
			t.Fatal(err)
		}
		return ws
	}
	ws := open()
	ref, _ := ws.Ref()
	kill(t, h)
	eventually(t, "the plugin is started again", func() bool {
		_, err := h.Check(t.Context(), "notes")
		return err == nil
	})
	again, err := h.Attach(ref)
	if err != nil {
		t.Fatal(err)
	}
	for name, ws := range map[string]workspace.Workspace{"the old handle": ws, "a new one": again} {
		if _, err := ws.ReadFile(t.Context(), "f"); !errors.Is(err, workspace.ErrUnavailable) {
			t.Errorf("read through %s: %v, want ErrUnavailable", name, err)
		}
	}
	open()
}

// kill ends the plugin's process, if one runs, and does not wait for its end.
func kill(t testing.TB, h *host.Host) {
	t.Helper()
	id := pid(h)
	if id == 0 {
		return
	}
	process, err := os.FindProcess(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}
