package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// Attach opens an existing container, started if it is stopped or paused
// (contract L3).
func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	if own := p.config.ContainerName; own != "" && id != own {
		return nil, p.notConfigured("workspace", id)
	}
	c, found, err := p.findWorkspace(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("workspace %s: there is no container of that name: %w", id, workspace.ErrUnavailable)
	}
	if err := p.mayUse(c, id); err != nil {
		return nil, err
	}
	ws, err := p.open(ctx, id, c)
	if errors.Is(err, errVanished) {
		return nil, fmt.Errorf("workspace %s: %w: %w", id, err, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	return ws, nil
}

// open starts a container if need be and connects to it. One that was made and
// never started is prepared first, whoever made it: every step can be done twice.
func (p *provider) open(ctx context.Context, id string, c container.InspectResponse) (sdk.Workspace, error) {
	r, err := p.recordOf(c)
	if err != nil {
		return nil, err
	}
	started, err := p.start(ctx, c, r)
	var ws sdk.Workspace
	if err == nil {
		ws, err = p.connect(ctx, id, started, r)
	}
	switch {
	case err == nil:
		return ws, nil
	case errdefs.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", errVanished, err)
	case neverStarted(c) && (errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, workspace.ErrTransient)):
		return nil, p.diedAtOnce(ctx, c, r, err)
	}
	return nil, err
}

const (
	// statusNoProgram is how the engine's own init ends when there is nothing that it
	// could start.
	statusNoProgram = 127
	// podmanNoProgram is what Podman's init says then, which ends with 1.
	podmanNoProgram = "failed to exec pid1"
)

// diedAtOnce finds out whether a container's first start came to nothing because
// of what we have it run.
func (p *provider) diedAtOnce(ctx context.Context, c container.InspectResponse, r record, err error) error {
	var now container.InspectResponse
	ended := false
	_ = p.settle(ctx, c.ID, func(c container.InspectResponse, err error) bool { // err's own cause is told
		now, ended = c, err == nil && hasEnded(c)
		return ended
	})
	if !ended {
		return err
	}
	if errors.Is(err, workspace.ErrTransient) { // it ended while something was asked of it
		err = p.unusable(ctx, now)
	}
	switch {
	case r.Guest == guestInit:
		return &guestError{err}
	case r.Guest != guestForeign && (now.State.ExitCode == statusNoProgram || strings.Contains(err.Error(), podmanNoProgram)):
		return noKeeper(r, err)
	}
	return err
}

// recordOf is what the labels say, or for somebody else's container what can be
// seen of it.
func (p *provider) recordOf(c container.InspectResponse) (record, error) {
	if isOurs(c.Config.Labels) {
		return readRecord(c.Config.Labels)
	}
	return record{
		Image: c.Config.Image, User: p.config.User, Guest: guestForeign,
		WorkDir: firstOf(p.config.WorkDir, c.Config.WorkingDir, "/"),
	}, nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// start brings a container to run, and returns what it is then.
func (p *provider) start(ctx context.Context, c container.InspectResponse, r record) (container.InspectResponse, error) {
	switch {
	case c.State.Dead, c.State.Restarting, c.State.Status == container.StateRemoving:
		return c, p.unusable(ctx, c)
	case c.State.Paused:
		sdk.Report(ctx, sdk.Progress{Text: "unpausing container " + nameOf(c)})
		err := p.engine.Change(ctx, "unpausing container "+nameOf(c), func(ctx context.Context, api *client.Client) error {
			err := api.ContainerUnpause(ctx, c.ID)
			if errdefs.IsConflict(err) || errdefs.IsInternal(err) && strings.Contains(err.Error(), "is not paused") {
				return nil // another was faster
			}
			return err
		})
		if err != nil {
			return c, err
		}
		return p.inspect(ctx, c.ID)
	case c.State.Running:
		return c, nil
	}
	first := neverStarted(c) && isOurs(c.Config.Labels)
	if first {
		if err := p.prepare(ctx, c, r); err != nil {
			return c, refusedMount(err)
		}
	}
	if err := p.startStopped(ctx, c, r); err != nil {
		return c, err
	}
	if first {
		if err := p.givePodmanVolume(ctx, c, r); err != nil {
			return c, err
		}
	}
	started, err := p.inspect(ctx, c.ID)
	if err != nil {
		return c, err
	}
	return started, p.unusable(ctx, started)
}

// podmanStops is what Podman says of a container that it is about to stop, where
// Docker waits.
const podmanStops = "must be in Created or Stopped state to be started"

// startStopped starts a container. A guest that is not there, since somebody has
// removed its volume, is put there again, once.
func (p *provider) startStopped(ctx context.Context, c container.InspectResponse, r record) error {
	doing := "starting container " + nameOf(c)
	sdk.Report(ctx, sdk.Progress{Text: doing})
	start := func() error {
		return p.engine.Change(ctx, doing, func(ctx context.Context, api *client.Client) error {
			err := api.ContainerStart(ctx, c.ID, container.StartOptions{})
			if err != nil && strings.Contains(err.Error(), podmanStops) {
				return fmt.Errorf("%s is being stopped: %w: %w", nameOf(c), err, workspace.ErrTransient)
			}
			return refused(otherContainer(c, err))
		})
	}
	err := start()
	if err == nil || !errors.Is(err, errNoProgram) {
		return err
	}
	if r.Guest != guestInit {
		if !isOurs(c.Config.Labels) {
			return err // somebody else's program
		}
		return noKeeper(r, err)
	}
	if again := p.replaceGuest(ctx, c); again != nil {
		return &guestError{errors.Join(err, again)}
	}
	if err = start(); errors.Is(err, errNoProgram) {
		return &guestError{err}
	}
	return err
}

// otherContainer tells of an error of a start whether it is about the container whose
// network this one is to share, which must not be taken for this one.
func otherContainer(c container.InspectResponse, err error) error {
	if err == nil || c.HostConfig == nil || !c.HostConfig.NetworkMode.IsContainer() {
		return err
	}
	other := c.HostConfig.NetworkMode.ConnectedContainer()
	if errdefs.IsNotFound(err) && strings.Contains(err.Error(), other) || strings.Contains(err.Error(), "non running container") {
		return fmt.Errorf("%s: config key network_mode: container:%s is not there or does not run: %w", err.Error(), other, workspace.ErrInvalid)
	}
	return err
}

// incarnationOf tells one container from another of its name (contract L8). Where
// its files end with each stop, it tells its starts apart too.
func incarnationOf(c container.InspectResponse, r record) string {
	if covered(c, r.WorkDir) {
		return c.ID + "@" + c.State.StartedAt
	}
	return c.ID
}
