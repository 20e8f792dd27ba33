package conformance

import (
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/durable"
)

const durablePlugin = durable.Name

func serveDurable() { sdk.Serve(durable.Plugin()) }

// durableBed returns options over a provider whose commands outlive its plugin. It
// keeps the contract, which package durable tests, and is here to be bent.
func durableBed(t testing.TB) Options {
	t.Helper()
	e := durable.StartEngine(t, t.TempDir())
	open := func(t testing.TB) *host.Host {
		return newHost(t, host.Config{
			PluginDirs: []string{pluginDir(t, durablePlugin)},
			Providers:  map[string]host.Provider{durablePlugin: {Config: e.Config()}},
		})
	}
	h := open(t)
	return Options{
		Host: h, Provider: durablePlugin, Probe: probeBinary(t), Started: started,
		OtherHost: func(t testing.TB) workspace.Host { return open(t) },
		Restart:   func(t testing.TB) { kill(t, h) },
	}
}
