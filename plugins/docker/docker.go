// Package docker gives containers of a Docker Engine as workspaces.
//
// A workspace is one container, named as the workspace is, with the guest of
// package plugin/sdk/guest as its init where that can run, and else reached
// through the engine's own exec and archive calls. Everything that a later
// process needs to find and open it is in the container's labels.
package docker

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
)

// Plugin is the plugin of this package, to be served.
func Plugin(version string) sdk.Plugin[Config] {
	return sdk.Plugin[Config]{
		Name:    "docker",
		Version: version,
		New: func(_ context.Context, config Config, env sdk.Env) (sdk.Provider, error) {
			return open(config, env, version)
		},
		Workspace: (*guestWorkspace)(nil),
		// Those that Docker's own client reads.
		Environment: []string{
			"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
			"DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "SSH_AUTH_SOCK",
		},
		Companions: []string{guestName + "-linux-amd64", guestName + "-linux-arm64"},
	}
}

// open checks the configuration and finds the engine. It asks the engine nothing
// yet: a provider can be looked at while its engine is away.
func open(config Config, env sdk.Env, version string) (*provider, error) {
	checked, err := config.check()
	if err != nil {
		return nil, err
	}
	eng, err := engine.Open()
	if err != nil {
		return nil, err
	}
	binaries, err := findGuests(config.GuestDir)
	if err != nil {
		return nil, fmt.Errorf("looking for the guest's binaries: %w", err)
	}
	return newProvider(checked, env, version, eng, binaries), nil
}
