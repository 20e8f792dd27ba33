package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// stat is a small call through host and plugin, against the same call on the
// same provider without either.
func stat(ctx context.Context, b *bench) error {
	ws, err := b.host.Workspace("state")
	if err != nil {
		return err
	}
	if err := ws.WriteFile(ctx, "a/file.txt", []byte("x")); err != nil {
		return err
	}
	direct, err := directState(ctx, b)
	if err != nil {
		return err
	}
	w, err := direct.Create(ctx, "/a/file.txt", workspace.WriteOptions{})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return b.compare("stat, state", "0.3 ms", "the same in process", "state", 4000,
		plain(func() error { _, err := ws.Stat(ctx, "a/file.txt"); return err }),
		plain(func() error { _, err := direct.Stat(ctx, "/a/file.txt"); return err }))
}

// directState is a workspace of the state provider without host, plugin or SDK.
func directState(ctx context.Context, b *bench) (sdk.Filesystem, error) {
	p, err := state.Plugin("bench").New(ctx, state.Config{}, sdk.Env{
		Provider: "direct", DataDir: filepath.Join(b.dir, "direct"), Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		return nil, err
	}
	ws, err := p.Create(ctx, sdk.CreateRequest{Token: workspace.NewToken()})
	if err != nil {
		return nil, err
	}
	return ws.(sdk.Filesystem), nil
}

// noop is a command that does nothing, against fork and exec of the same.
func noop(ctx context.Context, b *bench) error {
	ws, err := b.host.Workspace("local")
	if err != nil {
		return err
	}
	if _, err := ws.WorkingDir(ctx); err != nil {
		return err
	}
	return b.compare("no-op command, local", "2 ms", "fork+exec", "local", 1000,
		plain(func() error { _, err := ws.Run(ctx, workspace.Command{Args: []string{"/bin/true"}}); return err }),
		plain(func() error { return exec.CommandContext(ctx, "/bin/true").Run() }))
}

// start is from nothing to a plugin's first answer, against the least that
// go-plugin itself can do: its stock runner and a server without services.
func start(ctx context.Context, b *bench) error {
	empty := filepath.Join(b.dir, "empty")
	return b.compare("plugin start to first answer, local", "50 ms", "go-plugin's own minimal start", "", 60,
		func() (func() error, error) {
			h, err := host.New(host.Config{PluginDirs: []string{b.bin}, DataDir: empty, Providers: map[string]host.Provider{"local": {}}})
			if err != nil {
				return nil, err
			}
			for info, listErr := range h.List(ctx, "local", workspace.ListOptions{}) {
				err = cmp.Or(listErr, fmt.Errorf("a new data folder holds %s", info.Ref))
			}
			return h.Close, err
		},
		startMinimal)
}

var minimalHandshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "BERTH_BENCH_PLUGIN", MagicCookieValue: "1"}

// minimal is a plugin without services.
type minimal struct{ plugin.NetRPCUnsupportedPlugin }

func (minimal) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }
func (minimal) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// serveMinimal serves it, where this process was started as that plugin.
func serveMinimal() bool {
	if os.Getenv(minimalHandshake.MagicCookieKey) == "" {
		return false
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: minimalHandshake,
		Plugins:         plugin.PluginSet{"minimal": minimal{}},
		GRPCServer:      plugin.DefaultGRPCServer,
		Logger:          hclog.NewNullLogger(),
	})
	return true
}

func startMinimal() (after func() error, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  minimalHandshake,
		Plugins:          plugin.PluginSet{"minimal": minimal{}},
		Cmd:              exec.Command(exe), //nolint:noctx // go-plugin ends it
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		StartTimeout:     10 * time.Second,
	})
	after = func() error { client.Kill(); return nil }
	protocol, err := client.Client()
	if err != nil {
		return after, err
	}
	return after, protocol.Ping()
}
