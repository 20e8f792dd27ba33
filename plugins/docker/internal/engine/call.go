package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// Query makes a call that changes nothing, within [CallTimeout].
func (e *Engine) Query(ctx context.Context, doing string, call func(context.Context, *client.Client) error) error {
	return e.within(ctx, e.callLimit, doing, call)
}

// Change makes a call that changes something, within [ChangeTimeout].
func (e *Engine) Change(ctx context.Context, doing string, call func(context.Context, *client.Client) error) error {
	return e.within(ctx, e.changeLimit, doing, call)
}

var errNoAnswer = errors.New("the engine has not answered")

func (e *Engine) within(ctx context.Context, limit time.Duration, doing string, call func(context.Context, *client.Client) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", errNoAnswer, limit))
	defer cancel()
	return e.call(ctx, limited, doing, call)
}

// Stream makes a call that lasts as long as the engine has something to say,
// such as the pull of an image. It ends when there was silence for that long: the
// call says by alive that there was not.
func (e *Engine) Stream(ctx context.Context, silence time.Duration, doing string, call func(ctx context.Context, c *client.Client, alive func()) error) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("%w for %v", errNoAnswer, silence)) })
	defer timer.Stop()
	return e.call(ctx, limited, doing, func(ctx context.Context, c *client.Client) error {
		return call(ctx, c, func() { timer.Reset(silence) })
	})
}

// call makes a call under limited, which is ctx with a limit of ours.
func (e *Engine) call(ctx, limited context.Context, doing string, call func(context.Context, *client.Client) error) error {
	c, err := e.ready(limited)
	if err == nil {
		err = call(limited, c)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	if errdefs.IsInvalidArgument(err) && strings.Contains(err.Error(), "client version") && strings.Contains(err.Error(), "too new") {
		// An older engine has taken the other's place. The next call agrees with it.
		e.client.CompareAndSwap(c, nil)
		err = fmt.Errorf("the engine has been replaced by an older one: %s: %w", err.Error(), workspace.ErrTransient)
	}
	return e.Error(ctx, doing, err)
}

// refusesPing reports whether a server answers, and not as any engine does: its kind
// of error, such as that something is not there, says nothing of containers.
func refusesPing(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) ||
		errdefs.IsConflict(err) || errdefs.IsNotImplemented(err)
}

// ready returns the client with the version that both speak. It is agreed on
// once; a caller that gives up leaves it to the next.
func (e *Engine) ready(ctx context.Context) (*client.Client, error) {
	if c := e.client.Load(); c != nil {
		return c, nil
	}
	select {
	case e.checking <- struct{}{}:
		defer func() { <-e.checking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := e.client.Load(); c != nil {
		return c, nil
	}
	probe, err := e.newClient()
	if err != nil {
		return nil, e.endpoint.invalid("%v", err)
	}
	ping, err := probe.Ping(ctx)
	if err != nil {
		if reason, lasts := explain(err); reason != "" {
			return nil, &unreachableError{reason: reason, lasts: lasts}
		}
		if refusesPing(err) {
			return nil, e.endpoint.invalid("something other than a Docker Engine answers there, or a proxy before it (HTTP_PROXY, NO_PROXY): %v", err)
		}
		return nil, err
	}
	version := os.Getenv(client.EnvOverrideAPIVersion)
	if version == "" {
		version = ping.APIVersion
		if versions.GreaterThan(version, probe.ClientVersion()) {
			version = probe.ClientVersion()
		}
	}
	switch {
	case ping.APIVersion == "":
		return nil, e.endpoint.invalid("something other than a Docker Engine answers there")
	case versions.LessThan(version, MinAPIVersion):
		return nil, e.endpoint.invalid("it speaks version %s of Docker's API, and at least %s is needed (Engine 20.10)", version, MinAPIVersion)
	case ping.OSType != "" && ping.OSType != "linux":
		return nil, e.endpoint.invalid("it runs %s containers; switch it to linux containers", ping.OSType)
	}
	c, err := e.newClient(client.WithVersion(version))
	if err != nil {
		return nil, e.endpoint.invalid("%v", err)
	}
	e.client.Store(c)
	return c, nil
}
