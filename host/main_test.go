package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/wire"
)

// TestMain is also the main function of the plugin slow, for which this test's
// own binary is linked as berth-provider-slow.
func TestMain(m *testing.M) {
	if os.Getenv(wire.Handshake().MagicCookieKey) != "" {
		sdk.Serve(slowPlugin())
	}
	os.Exit(func() int {
		defer func() {
			if binaries.dir != "" {
				_ = os.RemoveAll(binaries.dir)
			}
		}()
		status := m.Run()
		if status == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				status = 1
			}
		}
		return status
	}())
}

// binaries are the real plugins, built once for those tests that need them.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

// pluginDir returns a folder that holds the plugins state, local and slow.
func pluginDir(t testing.TB) string {
	t.Helper()
	dir, err := builtPlugins()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func builtPlugins() (string, error) {
	binaries.once.Do(func() { binaries.dir, binaries.err = buildPlugins() })
	return binaries.dir, binaries.err
}

func buildPlugins() (string, error) {
	dir, err := os.MkdirTemp("", "berth-host-test-")
	if err != nil {
		return "", err
	}
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	for _, build := range []struct{ in, pkg, name string }{
		{"..", "./cmd/berth-provider-state", "state"},
		{filepath.Join("..", "examples", "provider-local"), ".", "local"},
	} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, wire.BinaryPrefix+build.name+suffix), build.pkg)
		cmd.Dir = build.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("building plugin %s: %w: %s", build.name, err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return dir, err
	}
	return dir, os.Symlink(self, filepath.Join(dir, wire.BinaryPrefix+"slow"+suffix))
}

// newProcesses is a host of real plugin processes.
func newProcesses(t testing.TB, providers map[string]host.Provider, change ...func(*host.Config)) *host.Host {
	t.Helper()
	config := host.Config{Providers: providers, PluginDirs: []string{pluginDir(t)}, Dir: t.TempDir(), DataDir: t.TempDir()}
	for _, c := range change {
		c(&config)
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}
