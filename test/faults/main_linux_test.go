package faults_test

import (
	"context"
	"os"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// plugins are the faulty plugins, built once.
var plugins faults.Plugins

// withSDK is a plugin that is made with the SDK: this binary, linked under its name.
const withSDK = "with-sdk"

func TestMain(m *testing.M) {
	if os.Getenv(wire.Handshake().MagicCookieKey) != "" {
		sdk.Serve(state.Plugin("test"))
	}
	if kind := os.Getenv(hostEnv); kind != "" {
		os.Exit(hostMain(kind))
	}
	os.Exit(faults.Main(m, &plugins))
}

// newHost is a host whose providers are the plugins of their names.
func newHost(t testing.TB, names []string, change ...func(*host.Config)) *host.Host {
	t.Helper()
	config := host.Config{PluginDirs: []string{plugins.Dir}, Dir: t.TempDir(), DataDir: t.TempDir(), Providers: map[string]host.Provider{}}
	for _, name := range names {
		config.Providers[name] = host.Provider{}
	}
	for _, c := range change {
		c(&config)
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopAtEnd)
		defer cancel()
		_ = h.Shutdown(ctx) // some tests leave calls that never end
	})
	return h
}

// open is a workspace of a provider.
func open(t testing.TB, h *host.Host, provider string) workspace.Workspace {
	t.Helper()
	ws, err := h.Workspace(provider, workspace.WithName("w"))
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := ws.WorkingDir(t.Context()); err != nil || dir != "/" {
		t.Fatalf("open %s: %q, %v", provider, dir, err)
	}
	return ws
}

// ask makes a plugin do something by a call that changes nothing.
func ask(ctx context.Context, ws workspace.Workspace, what string) (string, error) {
	info, err := ws.Stat(ctx, "/"+what)
	return info.Target, err
}

func mustAsk(t testing.TB, ws workspace.Workspace, what string) string {
	t.Helper()
	answer, err := ask(t.Context(), ws, what)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return answer
}

// order makes it do the same by a call that is never made twice.
func order(ctx context.Context, ws workspace.Workspace, what string) error {
	return ws.MkdirAll(ctx, "/"+what)
}
