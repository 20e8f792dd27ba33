package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
	"github.com/berth-dev/berth/shared/workspace"
)

var (
	_ sdk.Stopper      = (*provider)(nil)
	_ sdk.StoredReader = (*provider)(nil)
)

// stopSeconds is how long the processes of a container have to end.
const stopSeconds = int(workspace.StopGrace / 1e9)

// Stop stops a workspace's container. Its files stay, unless they are in memory:
// then it is refused.
func (p *provider) Stop(ctx context.Context, id string) error {
	c, r, err := p.kept(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case !isOurs(c.Config.Labels):
		return fmt.Errorf("stopping workspace %s: somebody else made its container: %w", id, errors.ErrUnsupported)
	case covered(c, r.WorkDir):
		return fmt.Errorf("stopping workspace %s: its work directory is a tmpfs, whose files a stop would lose: %w", id, errors.ErrUnsupported)
	case c.State.Status == container.StateExited:
		return nil
	}
	err = p.engine.Change(ctx, "stopping container "+nameOf(c), func(ctx context.Context, api *client.Client) error {
		seconds := stopSeconds
		return api.ContainerStop(ctx, c.ID, container.StopOptions{Timeout: &seconds})
	})
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("workspace %s: its container was removed meanwhile: %w", id, workspace.ErrUnavailable)
	}
	return err
}

// OpenStored reads a workspace's files by the engine's archive calls, which need no
// running container.
func (p *provider) OpenStored(ctx context.Context, id string) (sdk.Stored, error) {
	c, r, err := p.kept(ctx, id)
	if err != nil {
		return nil, err
	}
	return execpath.OpenStored(ctx, execpath.Config{
		Engine:      p.engine,
		ContainerID: c.ID,
		ID:          id,
		Incarnation: incarnationOf(c, r),
		WorkingDir:  r.WorkDir,
		Available: func(ctx context.Context) error {
			if _, err := p.inspect(ctx, c.ID); errdefs.IsNotFound(err) {
				return fmt.Errorf("workspace %s: its container was removed: %w", id, workspace.ErrUnavailable)
			}
			return nil
		},
	})
}

// kept finds the container of a workspace, in whatever state it is.
func (p *provider) kept(ctx context.Context, id string) (c container.InspectResponse, r record, err error) {
	if own := p.config.ContainerName; own != "" && id != own {
		return c, r, p.notConfigured("workspace", id)
	}
	c, found, err := p.findWorkspace(ctx, id)
	switch {
	case err != nil:
		return c, r, err
	case !found:
		return c, r, fmt.Errorf("workspace %s: there is no container of that name: %w", id, workspace.ErrUnavailable)
	}
	if err := p.mayUse(c, id); err != nil {
		return c, r, err
	}
	if c.State.Dead || c.State.Status == container.StateRemoving {
		return c, r, p.unusable(ctx, c)
	}
	r, err = p.recordOf(c)
	return c, r, err
}
