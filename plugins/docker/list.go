package docker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// List tells the containers that this provider made, whoever has lost track of
// them. Somebody else's that the configuration names is not among them.
func (p *provider) List(ctx context.Context, opts workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		filter := filters.NewArgs(
			filters.Arg("label", workspace.LabelManaged+"=true"),
			filters.Arg("label", workspace.LabelProvider+"="+p.name),
		)
		for key, value := range opts.Labels {
			filter.Add("label", key+"="+value)
		}
		var all []container.Summary
		err := p.engine.Query(ctx, "listing containers", func(ctx context.Context, api *client.Client) (err error) {
			all, err = api.ContainerList(ctx, container.ListOptions{All: true, Filters: filter})
			return err
		})
		if err != nil {
			yield(sdk.Info{}, err)
			return
		}
		for _, c := range all {
			if !isOurs(c.Labels) {
				continue
			}
			copied := false
			if name := "/" + p.containerName(keyOf(c.Labels)); !slices.Contains(c.Names, name) {
				if copied, err = p.isCopy(ctx, c.ImageID, c.Labels); err != nil {
					yield(sdk.Info{}, err)
					return
				}
			}
			if !copied && !yield(p.info(c), nil) {
				return
			}
		}
	}
}

// isCopy says whether a container has its labels from its image: somebody has made
// that of a workspace's container, by docker commit, and run it.
func (p *provider) isCopy(ctx context.Context, imageID string, labels map[string]string) (copied bool, err error) {
	err = p.engine.Query(ctx, "looking at image "+imageID, func(ctx context.Context, api *client.Client) error {
		image, err := api.ImageInspect(ctx, imageID)
		if errdefs.IsNotFound(err) {
			return nil
		}
		copied = err == nil && image.Config != nil && image.Config.Labels[labelToken] == labels[labelToken]
		return err
	})
	return copied, err
}

func (p *provider) info(c container.Summary) sdk.Info {
	details := map[string]string{"image": c.Image, "container": short(c.ID)}
	info := sdk.Info{
		ID: keyOf(c.Labels), Name: c.Labels[labelName], Created: time.Unix(c.Created, 0),
		State: c.State, Details: details,
	}
	r, err := readRecord(c.Labels)
	if err != nil {
		details["record"] = err.Error()
		return info
	}
	info.Labels = r.ownLabels(c.Labels)
	details["image"] = firstOf(r.Image, c.Image)
	if r.Runtime != "" {
		details["runtime"] = r.Runtime
	}
	details["guest"] = p.placementOf(c.ID, r)
	return info
}

// placementOf says how the guest is placed: as it turned out where this process
// has opened the container, and else as it was made.
func (p *provider) placementOf(id string, r record) string {
	how, reason := r.Guest, r.Reason
	p.mu.Lock()
	for _, room := range p.rooms {
		if room.container == id && room.record.Guest != "" {
			how, reason = room.record.Guest, room.record.Reason
		}
	}
	p.mu.Unlock()
	if how == guestOff {
		how = "none"
	}
	if reason != "" {
		return fmt.Sprintf("%s (%s)", how, reason)
	}
	return how
}
