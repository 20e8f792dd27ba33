package docker

import (
	"context"
	"errors"
	"strings"
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

// sweep is [provider.Sweep] after a Destroy: there is no timer, and most users never
// ask for more. What it would be slow to make again stays, and what goes wrong is in
// the log alone.
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
	kept := ""
	if system, err := p.architecture(ctx); err == nil {
		if bin, err := p.binaries.binary(system); err == nil {
			kept = guestvolume.Name(bin.Digest)
		}
	}
	s := sweeping{provider: p, unused: sweepGrace, unusedImages: keepRuntimes, kept: kept}
	if _, err := s.all(ctx); err != nil {
		p.logger.Warn("sweeping", "error", err)
	}
}

// Sweep removes what nothing uses any more: helper containers that their makers
// did not come to remove, work directories without a container, guests that no
// container has, images of runtimes.
func (p *provider) Sweep(ctx context.Context, opts workspace.SweepOptions) ([]workspace.Leftover, error) {
	unused := max(opts.OlderThan, sweepGrace)
	s := sweeping{provider: p, dryRun: opts.DryRun, unused: unused, unusedImages: max(unused, runtimes.KeepUnused)}
	return s.all(ctx)
}

// sweeping is one sweep.
type sweeping struct {
	*provider
	dryRun               bool
	unused, unusedImages time.Duration
	kept                 string // a guest's volume that stays in any case
}

func (s sweeping) all(ctx context.Context) ([]workspace.Leftover, error) {
	var swept []workspace.Leftover
	var errs []error
	for _, part := range []func(context.Context) ([]workspace.Leftover, error){s.helpers, s.volumes, s.images} {
		some, err := part(ctx)
		swept, errs = append(swept, some...), append(errs, err)
		if errors.Is(err, workspace.ErrTransient) {
			break // the engine is gone: the others would wait as long, to say the same
		}
	}
	return swept, errors.Join(errs...)
}

// removed tries to remove something and says whether that is to be told: another
// may be at it, or have begun to use it, which is no error.
func (s sweeping) removed(remove func() error) bool { return s.dryRun || remove() == nil }

func (s sweeping) helpers(ctx context.Context) (swept []workspace.Leftover, err error) {
	err = s.engine.Change(ctx, "removing helper containers", func(ctx context.Context, api *client.Client) error {
		all, err := api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
			filters.Arg("label", workspace.LabelManaged+"=true"), filters.Arg("label", labelHelper+"=true"),
		)})
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.State != container.StateCreated || time.Since(time.Unix(c.Created, 0)) < s.unused {
				continue
			}
			if s.removed(func() error {
				return api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
			}) {
				swept = append(swept, workspace.Leftover{Kind: "container", Name: strings.TrimPrefix(strings.Join(c.Names, " "), "/")})
			}
		}
		return nil
	})
	return swept, err
}

// volumes leaves to the engine to say what is in use: it refuses that.
func (s sweeping) volumes(ctx context.Context) (swept []workspace.Leftover, err error) {
	err = s.engine.Change(ctx, "removing unused volumes", func(ctx context.Context, api *client.Client) error {
		all, err := api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(
			filters.Arg("label", workspace.LabelManaged+"=true"), filters.Arg("dangling", "true"),
		)})
		if err != nil {
			return err
		}
		for _, v := range all.Volumes {
			if s.leftBehind(v, time.Now()) && s.removed(func() error { return api.VolumeRemove(ctx, v.Name, false) }) {
				swept = append(swept, workspace.Leftover{Kind: "volume", Name: v.Name})
			}
		}
		return nil
	})
	return swept, err
}

func (s sweeping) images(ctx context.Context) (swept []workspace.Leftover, err error) {
	refs, err := runtimes.Prune(ctx, s.engine, s.unusedImages, s.dryRun)
	for _, ref := range refs {
		swept = append(swept, workspace.Leftover{Kind: "image", Name: ref})
	}
	return swept, err
}

// leftBehind says whether a volume of ours that no container has is for nobody any
// more: the work directory of a workspace of this provider, or a guest.
func (s sweeping) leftBehind(v *volume.Volume, now time.Time) bool {
	made, err := time.Parse(time.RFC3339, v.CreatedAt)
	if err != nil || now.Sub(made) < s.unused || v.Labels[workspace.LabelManaged] != "true" {
		return false
	}
	if v.Labels[guestvolume.LabelGuest] != "" {
		return v.Name != s.kept
	}
	return v.Labels[workspace.LabelProvider] == s.name
}
