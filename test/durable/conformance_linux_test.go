package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/durable"
)

// TestMain is also the main function of the plugin, when a host starts this binary.
func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(wire.Handshake().MagicCookieKey) != "" {
		sdk.Serve(durable.Plugin())
	}
	goleak.VerifyTestMain(m)
}

// TestContract is over commands that outlive their plugin. The suite's own tests
// bend this provider.
func TestContract(t *testing.T) {
	open := opener(t, durable.StartEngine(t, t.TempDir()))
	h := open(t)
	r := conformance.Test(t, conformance.Options{
		Host: h, Provider: durable.Name,
		OtherHost: func(t testing.TB) workspace.Host { return open(t) },
		Started:   func(h workspace.Host) bool { return h.(*host.Host).Providers()[0].State != "stopped" },
		Restart:   func(t testing.TB) { kill(t, h) },
	})
	if r.Count(conformance.Checked) < 130 || r.Count(conformance.Failed)+r.Count(conformance.Deviates) > 0 {
		t.Errorf("%d checked, %d failed, %d deviate", r.Count(conformance.Checked), r.Count(conformance.Failed), r.Count(conformance.Deviates))
	}
}

// opener returns what makes hosts for one engine.
func opener(t *testing.T, e *durable.Engine) func(t testing.TB, change ...func(*host.Config)) *host.Host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, wire.BinaryPrefix+durable.Name)); err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB, change ...func(*host.Config)) *host.Host {
		t.Helper()
		config := host.Config{
			PluginDirs: []string{dir}, DataDir: t.TempDir(),
			Providers: map[string]host.Provider{durable.Name: {Config: e.Config()}},
		}
		for _, c := range change {
			c(&config)
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
}

// kill ends the plugin of a host, as a crash would.
func kill(t testing.TB, h *host.Host) {
	t.Helper()
	pid := h.Providers()[0].PID
	if pid == 0 {
		return // it is being started again
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}
