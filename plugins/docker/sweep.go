package docker

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/plugins/docker/internal/runtimes"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// sweepGrace is how old something must be before it is taken for left behind:
	// what is being made right now, by another process too, has no user yet.
	sweepGrace = 10 * time.Minute
	// sweepEvery is how often one process sweeps at most: who destroys a hundred
	// workspaces waits for it once.
	sweepEvery = time.Minute
	// keepRuntimes is how long a runtime's image stays that nothing uses: building it
	// again takes minutes.
	keepRuntimes = 7 * 24 * time.Hour
)

// sweep removes what nothing uses any more: helper containers that their makers
// did not come to remove, work directories without a container, guests of other
// versions that no container has, images of runtimes. It is done after a Destroy,
// since there is no timer and no other moment; what goes wrong is in the log alone.
func (p *provider) sweep(ctx context.Context) {
	p.mu.Lock()
	due := time.Since(p.swept) > sweepEvery
	if due {
		p.swept = time.Now()
	}
	p.mu.Unlock()
	if !due {
		return
	}
	if err := p.sweepHelpers(ctx); err != nil {
		p.logger.Warn("sweeping helper containers", "error", err)
	}
	if err := p.sweepVolumes(ctx); err != nil {
		p.logger.Warn("sweeping volumes", "error", err)
	}
	if _, err := runtimes.Prune(ctx, p.engine, keepRuntimes); err != nil {
		p.logger.Warn("sweeping images of runtimes", "error", err)
	}
}

func (p *provider) sweepHelpers(ctx context.Context) error {
	return p.engine.Change(ctx, "removing helper containers", func(ctx context.Context, api *client.Client) error {
		all, err := api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
			filters.Arg("label", workspace.LabelManaged+"=true"), filters.Arg("label", labelHelper+"=true"),
		)})
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.State == container.StateCreated && time.Since(time.Unix(c.Created, 0)) > sweepGrace {
				_ = api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}) // another may be at it
			}
		}
		return nil
	})
}

// sweepVolumes leaves to the engine to say what is in use: it refuses that.
func (p *provider) sweepVolumes(ctx context.Context) error {
	current := ""
	if system, err := p.architecture(ctx); err == nil {
		if bin, err := p.binaries.binary(system); err == nil {
			current = guestvolume.Name(bin.Digest)
		}
	}
	return p.engine.Change(ctx, "removing unused volumes", func(ctx context.Context, api *client.Client) error {
		all, err := api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(
			filters.Arg("label", workspace.LabelManaged+"=true"), filters.Arg("dangling", "true"),
		)})
		if err != nil {
			return err
		}
		for _, v := range all.Volumes {
			if p.leftBehind(v, current, time.Now()) {
				_ = api.VolumeRemove(ctx, v.Name, false) // used again meanwhile, or removed by another
			}
		}
		return nil
	})
}

// leftBehind says whether a volume of ours that no container has is for nobody any
// more: the work directory of a workspace of this provider, or a guest that is not
// the current one.
func (p *provider) leftBehind(v *volume.Volume, current string, now time.Time) bool {
	made, err := time.Parse(time.RFC3339, v.CreatedAt)
	if err != nil || now.Sub(made) < sweepGrace || v.Labels[workspace.LabelManaged] != "true" {
		return false
	}
	if v.Labels[guestvolume.LabelGuest] != "" {
		return v.Name != current
	}
	return v.Labels[workspace.LabelProvider] == p.name
}
