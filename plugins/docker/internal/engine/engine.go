// Package engine is a Docker Engine as the provider sees it: found as Docker's
// own client finds it, with a deadline on every call, and with errors that say
// what was being done and what a caller may decide on.
//
// [Open] finds it, [Engine.Query], [Engine.Change] and [Engine.Stream] call it,
// and [Engine.Exec] executes in its containers.
package engine

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/docker/docker/client"
)

const (
	// CallTimeout is for a call that the engine answers from what it knows. It is
	// long: an engine on a busy machine is slow, and one that has not answered by
	// then is wedged.
	CallTimeout = 30 * time.Second
	// ChangeTimeout is for a call that makes, starts, stops or removes something,
	// which may wait for a disk.
	ChangeTimeout = 2 * time.Minute
	// MinAPIVersion is the oldest API that the provider is tested with: that of
	// Engine 20.10.
	MinAPIVersion = "1.41"
)

const (
	// idleConns is how many connections are kept for the next calls: about as many
	// as calls run at once when many workspaces open together.
	idleConns = 16
	// idleTimeout is when a connection that no call uses is closed. The engine
	// would keep it for ever.
	idleTimeout = 30 * time.Second
)

// Engine is a connection to one engine. It may be used concurrently.
type Engine struct {
	endpoint  endpoint
	transport *http.Transport
	// limits on calls: [CallTimeout] and [ChangeTimeout].
	callLimit, changeLimit time.Duration
	exitLimit              time.Duration // exitUnknownAfter

	// client speaks the version that was agreed on, nil until one was.
	client atomic.Pointer[client.Client]
	// unchecked agrees on the version with its first request, for callers of
	// Client that come before all others.
	unchecked *client.Client
	// checking is held by the one call that agrees on the version.
	checking chan struct{}
}

// Open finds the engine as Docker's own client does: DOCKER_HOST with its TLS
// variables, else the context that DOCKER_CONTEXT or the configuration in
// DOCKER_CONFIG names, else the default socket. It connects to nothing yet.
// Whatever is wrong with these is [workspace.ErrInvalid].
func Open() (*Engine, error) {
	found, err := find()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		endpoint:    found,
		transport:   found.transport(),
		callLimit:   CallTimeout,
		changeLimit: ChangeTimeout,
		exitLimit:   exitUnknownAfter,
		checking:    make(chan struct{}, 1),
	}
	e.unchecked, err = e.newClient(client.WithVersionFromEnv(), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, found.invalid("%v", err)
	}
	return e, nil
}

// newClient returns a client over the engine's connections.
func (e *Engine) newClient(opts ...client.Opt) (*client.Client, error) {
	return client.NewClientWithOpts(append([]client.Opt{
		client.WithHost(e.endpoint.url), // before the transport, which it would change
		client.WithHTTPClient(&http.Client{Transport: e.transport, CheckRedirect: client.CheckRedirect}),
		client.WithScheme(e.endpoint.scheme()),
		withSpanNames(),
	}, opts...)...)
}

// Client is the engine's API. Its calls have no deadline but the context's, and
// its errors are the engine's own: see [Engine.Query], [Engine.Change] and
// [Engine.Stream].
func (e *Engine) Client() *client.Client {
	if c := e.client.Load(); c != nil {
		return c
	}
	return e.unchecked
}

// Address is where the engine is, for people.
func (e *Engine) Address() string { return e.endpoint.host }

// Close gives up the connections that are idle. What is under way goes on.
func (e *Engine) Close() error {
	e.transport.CloseIdleConnections()
	return nil
}
