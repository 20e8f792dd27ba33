//go:build docker

package docker_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// bed is a provider of a name that nobody else has, and a host with it.
type bed struct {
	engine   *client.Client
	provider string
	config   map[string]any
	plugins  string // the folder of its plugin
	host     *host.Host
}

// newBed makes a bed whose provider is configured with an image and whatever else.
func newBed(t testing.TB, image string, extra map[string]any) *bed {
	t.Helper()
	config := map[string]any{"image": enginetest.Image(t, image), "network_mode": "none"}
	maps.Copy(config, extra)
	b := &bed{provider: enginetest.Unique(t), engine: enginetest.Client(t), config: config, plugins: bin}
	b.host = b.newHost(t, nil)
	return b
}

// newBedBehind makes a bed whose plugins find the engine at an address of their own,
// which t.Setenv would give to all tests, and have them wait for each other.
func newBedBehind(t testing.TB, address, image string, extra map[string]any) *bed {
	t.Helper()
	config := map[string]any{"image": enginetest.Image(t, image), "network_mode": "none", "guest_dir": bin}
	maps.Copy(config, extra)
	b := &bed{provider: enginetest.Unique(t), engine: enginetest.Client(t), config: config, plugins: pluginWith(t, "DOCKER_HOST="+address)}
	b.host = b.newHost(t, nil)
	return b
}

// pluginWith is a folder with a plugin that has a variable besides those of its host.
func pluginWith(t testing.TB, variable string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	// A shell writes it: this process may be starting others that would have its
	// file open for a moment, and a program that is open for writing cannot be run.
	write := exec.CommandContext(t.Context(), "sh", "-c", `cat >"$0" && chmod 755 "$0"`, filepath.Join(dir, pluginName))
	write.Stdin = strings.NewReader(fmt.Sprintf("#!/bin/sh\nexec env '%s' '%s' \"$@\"\n", variable, filepath.Join(bin, pluginName)))
	if text, err := write.CombinedOutput(); err != nil {
		t.Fatalf("write the plugin's script: %v\n%s", err, text)
	}
	return dir
}

// newHost is another host of the bed's provider, with some keys changed.
func (b *bed) newHost(t testing.TB, changed map[string]any) *host.Host {
	t.Helper()
	config := maps.Clone(b.config)
	maps.Copy(config, changed)
	conventional := b.plugins == bin
	h, err := host.New(host.Config{
		PluginDirs: []string{b.plugins},
		Providers: map[string]host.Provider{b.provider: {
			Plugin: "docker", Config: config, ConventionalEnv: &conventional,
			Budget: host.Budget{Restarts: host.UnlimitedRestarts}, // tests kill it as often as they like
		}},
		Logger: logger(t),
	})
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

// logger is quiet unless a test that fails is looked into.
func logger(t testing.TB) hclog.Logger {
	if os.Getenv("BERTH_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: t.Name(), Level: hclog.Debug, Output: os.Stderr})
}

// open opens a workspace that ends with the test.
func (b *bed) open(t testing.TB, options ...workspace.Option) workspace.Workspace {
	t.Helper()
	ws, err := b.host.Workspace(b.provider, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.WorkingDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ws
}

// attach makes a handle of the bed's own host from a ref's text.
func (b *bed) attach(t testing.TB, text string) workspace.Workspace {
	t.Helper()
	r, err := workspace.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := b.host.Attach(r)
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func ref(t testing.TB, ws workspace.Workspace) workspace.Ref {
	t.Helper()
	r, ok := ws.Ref()
	if !ok {
		t.Fatal("the workspace has no ref")
	}
	return r
}

// inspect looks at a workspace's container.
func (b *bed) inspect(t testing.TB, ref workspace.Ref) container.InspectResponse {
	t.Helper()
	c, err := b.engine.ContainerInspect(t.Context(), ref.ID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stop stops a container as `docker stop` does.
func (b *bed) stop(t testing.TB, ref workspace.Ref) {
	t.Helper()
	if err := b.engine.ContainerStop(t.Context(), ref.ID, container.StopOptions{}); err != nil {
		t.Fatal(err)
	}
}

// plain is a container that somebody has started by hand.
func (b *bed) plain(t testing.TB, name string, config *container.Config, hostConfig *container.HostConfig) string {
	t.Helper()
	if config.Image == "" {
		config.Image = b.config["image"].(string)
	}
	if hostConfig == nil {
		hostConfig = &container.HostConfig{}
	}
	if hostConfig.NetworkMode == "" {
		hostConfig.NetworkMode = "none"
	}
	made, err := b.engine.ContainerCreate(t.Context(), config, hostConfig, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// output runs a script and returns what it wrote.
func output(t testing.TB, ws workspace.Workspace, script string) string {
	t.Helper()
	res, err := ws.Run(t.Context(), workspace.Command{Script: script})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("%s: exit code %d: %s", script, res.ExitCode, res.Stderr)
	}
	return string(res.Stdout)
}

// kill ends a host's plugin process, if one runs, and does not wait for its end.
func kill(t testing.TB, h *host.Host) {
	t.Helper()
	for _, p := range h.Providers() {
		if p.PID == 0 {
			continue
		}
		process, err := os.FindProcess(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}
