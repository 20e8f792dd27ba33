package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// probeDir is for what all tests of this package share; TestMain removes it.
func probeDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("conformance-%d", os.Getpid()))
}

// buildProbe builds the probe once.
var buildProbe = sync.OnceValues(func() (string, error) {
	if err := os.Mkdir(probeDir(), 0o700); err != nil {
		return "", err
	}
	return BuildProbe(context.Background(), probeDir(), "", "")
})

func probeBinary(t testing.TB) string {
	t.Helper()
	path, err := buildProbe()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newHost(t testing.TB, config host.Config) *host.Host {
	t.Helper()
	if testing.Verbose() && os.Getenv("CONFORMANCE_LOG") != "" {
		config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug})
	}
	if config.DataDir == "" {
		config.DataDir = t.TempDir()
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
	})
	return h
}

// started reports whether a host runs a plugin.
func started(h workspace.Host) bool {
	for _, p := range h.(interface{ Providers() []host.ProviderStatus }).Providers() {
		if p.State != "stopped" {
			return true
		}
	}
	return false
}

// folderBed returns options with every hook, over a provider that is served in
// this process or, so that it can be killed, in one of its own.
func folderBed(t testing.TB, ownProcess bool) Options {
	t.Helper()
	root := t.TempDir()
	env := map[string]string{"LANG": "de_DE.UTF-8", "CONFORMANCE_PROVIDER": "a  b\n'c'"}
	plain := folderConfig{Root: root, Env: env}
	open := func(t testing.TB, change func(*folderConfig)) *host.Host {
		p := host.Provider{Config: plain.with(change)}
		config := host.Config{}
		if ownProcess {
			config.PluginDirs = []string{pluginDir(t, folderPlugin)}
		} else {
			p.InProcess = newFolderPlugin()
		}
		config.Providers = map[string]host.Provider{folderPlugin: p}
		return newHost(t, config)
	}
	h := open(t, nil)
	f := &folders{plain}
	must := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	order := func(t testing.TB, name, what string) {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(what), 0o600))
		t.Cleanup(func() {
			if err := os.Remove(filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	opts := Options{
		Host: h, Provider: folderPlugin, Probe: probeBinary(t), Env: env,
		OtherHost: func(t testing.TB) workspace.Host { return open(t, nil) },
		Started:   started,
		Stop: func(t testing.TB, ref workspace.Ref) {
			must(t, os.Rename(f.at("w", ref.ID), f.at("s", ref.ID)))
		},
		Reconfigured: func(t testing.TB) workspace.Host {
			return open(t, func(c *folderConfig) { c.Sub = "elsewhere" })
		},
		Replace: func(t testing.TB, ref workspace.Ref) {
			old := f.at("w", ref.ID)
			must(t, os.Rename(old, filepath.Join(t.TempDir(), "old")))
			must(t, os.Mkdir(old, 0o700))
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			name := newName()
			must(t, os.MkdirAll(f.at("w", name), 0o700))
			return name, workspace.Ref{Provider: folderPlugin, ID: name}
		},
		Configured: func(t testing.TB) Configured {
			return Configured{Host: open(t, func(c *folderConfig) { c.Name = "the-one" }), Provider: folderPlugin, Name: "the-one"}
		},
		FailCreates: func(t testing.TB) func() {
			order(t, "fail", "")
			return func() { must(t, os.Remove(filepath.Join(root, "fail"))) }
		},
		SlowCreates: func(t testing.TB, d time.Duration) { order(t, "slow", d.String()) },
	}
	if ownProcess {
		opts.Restart = func(t testing.TB) { kill(t, h) }
	}
	return opts
}

// kill ends the plugin of a host, as a crash would.
func kill(t testing.TB, h *host.Host) {
	t.Helper()
	for _, p := range h.Providers() {
		if p.PID == 0 {
			continue // it is being started again
		}
		process, err := os.FindProcess(p.PID)
		if err == nil {
			err = process.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
}

// pluginDir is a folder with this binary as a plugin.
func pluginDir(t testing.TB, plugin string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, wire.BinaryPrefix+plugin)
	if os.Link(self, name) == nil {
		return dir
	}
	b, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(name, b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// stateBed returns options for plugins/state: files only.
func stateBed(t testing.TB, store string) Options {
	t.Helper()
	const notes, others = "notes", "others"
	open := func(t testing.TB) *host.Host {
		p := host.Provider{InProcess: state.Plugin("test"), Config: map[string]any{"store": store}}
		return newHost(t, host.Config{Providers: map[string]host.Provider{notes: p, others: p}})
	}
	h := open(t)
	create := func(t testing.TB, provider string, opt workspace.Option) {
		t.Helper()
		ws, err := h.Workspace(provider, opt)
		if err == nil {
			_, err = ws.WorkingDir(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	opts := Options{
		Host: h, Provider: notes, Started: started,
		Replace: func(t testing.TB, ref workspace.Ref) {
			if err := h.Destroy(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			create(t, notes, workspace.WithToken(ref.ID))
		},
	}
	if store != "memory" {
		opts.OtherHost = func(t testing.TB) workspace.Host { return open(t) }
		// A provider of another name that shares the file.
		opts.Elsewhere = func(t testing.TB) (string, workspace.Ref) {
			name := newName()
			create(t, others, workspace.WithName(name))
			return name, workspace.Ref{Provider: notes, ID: name}
		}
	} else {
		const reason = "workspaces end with the plugin's process"
		opts.Deviations = []sdk.Deviation{{Rule: "L6", Reason: reason}, {Rule: "B3", Reason: reason}}
	}
	return opts
}
