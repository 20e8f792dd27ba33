// Package engine is a Docker Engine as the provider sees it: found as Docker's
// own client finds it, with a deadline on every call, and with errors that say
// what was being done and what a caller may decide on.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// CallTimeout is for a call that the engine answers from what it knows. It is
	// long: an engine on a busy machine is slow, and one that has not answered by
	// then is wedged.
	CallTimeout = 30 * time.Second
	// ChangeTimeout is for a call that makes, starts, stops or removes something,
	// which may wait for a disk.
	ChangeTimeout = 2 * time.Minute
)

const (
	envContext     = "DOCKER_CONTEXT"
	defaultContext = "default"
)

// Engine is a connection to one engine. It may be used concurrently.
type Engine struct {
	client  *client.Client
	address string
}

// Open finds the engine as Docker's own client does: DOCKER_HOST with its TLS
// variables, else the context that DOCKER_CONTEXT or the configuration in
// DOCKER_CONFIG names, else the default socket. It connects to nothing yet.
func Open() (*Engine, error) {
	opts, err := options()
	if err != nil {
		return nil, err
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker engine: %w: %w", err, workspace.ErrInvalid)
	}
	return &Engine{client: c, address: c.DaemonHost()}, nil
}

func options() ([]client.Opt, error) {
	name := contextName()
	if name == defaultContext {
		endpoint := docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: cmp.Or(os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)}}
		opts, err := endpoint.ClientOpts()
		if err != nil {
			return nil, fmt.Errorf("docker engine: %s=%s: %w: %w", client.EnvOverrideHost, os.Getenv(client.EnvOverrideHost), err, workspace.ErrInvalid)
		}
		return append(opts, client.WithTLSClientConfigFromEnv()), nil
	}
	contexts := store.New(config.ContextStoreDir(), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
	fail := func(err error) error {
		return fmt.Errorf("docker engine: context %q: %w: %w", name, err, workspace.ErrInvalid)
	}
	metadata, err := contexts.GetMetadata(name)
	if err != nil {
		return nil, fail(err)
	}
	meta, err := docker.EndpointFromContext(metadata)
	if err != nil {
		return nil, fail(err)
	}
	endpoint, err := docker.WithTLSData(contexts, name, meta)
	if err != nil {
		return nil, fail(err)
	}
	opts, err := endpoint.ClientOpts()
	if err != nil {
		return nil, fail(err)
	}
	return opts, nil
}

// contextName is the context to use, in Docker's own order.
func contextName() string {
	if os.Getenv(client.EnvOverrideHost) != "" {
		return defaultContext
	}
	if name := os.Getenv(envContext); name != "" {
		return name
	}
	if file, err := config.Load(config.Dir()); err == nil && file.CurrentContext != "" {
		return file.CurrentContext
	}
	return defaultContext
}

// Client is the engine's API. Its calls have no deadline but the context's: see
// [Engine.Query] and [Engine.Change].
func (e *Engine) Client() *client.Client { return e.client }

// Address is where the engine is, for people.
func (e *Engine) Address() string { return e.address }

// Close gives up the connections that are idle.
func (e *Engine) Close() error { return e.client.Close() }

// Query makes a call that changes nothing, within [CallTimeout].
func (e *Engine) Query(ctx context.Context, doing string, call func(context.Context, *client.Client) error) error {
	return e.within(ctx, CallTimeout, doing, call)
}

// Change makes a call that changes something, within [ChangeTimeout].
func (e *Engine) Change(ctx context.Context, doing string, call func(context.Context, *client.Client) error) error {
	return e.within(ctx, ChangeTimeout, doing, call)
}

var errNoAnswer = errors.New("the engine has not answered")

func (e *Engine) within(ctx context.Context, limit time.Duration, doing string, call func(context.Context, *client.Client) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", errNoAnswer, limit))
	defer cancel()
	err := call(limited, e.client)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	return e.Error(ctx, doing, err)
}
