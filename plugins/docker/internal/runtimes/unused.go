package runtimes

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

// labelToken is on every workspace's container, and so on an image that somebody has
// made of one.
const labelToken = workspace.LabelPrefix + "token"

const (
	// KeepUnused is how long a superseded image stays after its last use: two
	// versions of a recipe that take turns on one engine must not build each time,
	// and who was just given an image has yet to make its container.
	KeepUnused = time.Hour
	// markEvery is how precisely the last use is kept.
	markEvery = 10 * time.Minute
)

// markUsed has the engine note that an image is in use: a tag that is given again
// changes nothing but the time of it. Some engines do not keep that time; there
// an image counts from its build.
func markUsed(ctx context.Context, eng *engine.Engine, ref string, found *image.InspectResponse) {
	if time.Since(found.Metadata.LastTagTime) < markEvery {
		return
	}
	_ = eng.Change(ctx, "marking image "+ref, func(ctx context.Context, c *client.Client) error {
		return c.ImageTag(ctx, ref, ref)
	})
}

// Prune removes the images of runtimes, and what failed builds left, that no
// container uses and nobody has used for that long, or only finds them. It returns
// their references.
func Prune(ctx context.Context, eng *engine.Engine, unused time.Duration, dryRun bool) ([]string, error) {
	remove := removeImage
	if dryRun {
		remove = unusedImage
	}
	return prune(ctx, eng, unused, filters.Arg("label", labelName), "", remove)
}

// removeSuperseded removes the images of other recipes of the same name. That it
// cannot is no reason to fail: the next build, or a prune, tries again.
func (r Runtime) removeSuperseded(ctx context.Context, eng *engine.Engine, unused time.Duration) {
	_, _ = prune(ctx, eng, unused, filters.Arg("label", labelName+"="+r.Name), r.reference(), removeImage)
}

func prune(ctx context.Context, eng *engine.Engine, unused time.Duration, which filters.KeyValuePair, keep string,
	remove func(context.Context, *engine.Engine, string) error,
) ([]string, error) {
	var list []image.Summary
	err := eng.Query(ctx, "listing the images of runtimes", func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(which)})
		return err
	})
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, i := range list {
		refs := ourTags(i.RepoTags)
		if unnamed(i.RepoTags) && i.Labels[labelToken] == "" {
			refs = []string{i.ID} // left by a build
		}
		for _, ref := range refs {
			if ref == keep {
				continue
			}
			used, err := lastUse(ctx, eng, ref)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if used.IsZero() || time.Since(used) < unused {
				continue
			}
			switch err := remove(ctx, eng, ref); {
			case err == nil:
				removed = append(removed, ref)
			case !errdefs.IsConflict(err) && !errdefs.IsNotFound(err): // in use, or gone
				errs = append(errs, err)
			}
		}
	}
	return removed, errors.Join(errs...)
}

// unnamed says that an image has no name; older engines write that as one.
func unnamed(refs []string) bool {
	return len(refs) == 0 || len(refs) == 1 && refs[0] == "<none>:<none>"
}

// ourTags leaves out names that someone else gave to an image of ours, and writes
// the others as we do: some engines put a registry before a name.
func ourTags(refs []string) []string {
	var ours []string
	for _, ref := range refs {
		ref = strings.TrimPrefix(strings.TrimPrefix(ref, "docker.io/library/"), "localhost/")
		if strings.HasPrefix(ref, repository+":") {
			ours = append(ours, ref)
		}
	}
	return ours
}

// lastUse is zero for an image that is gone.
func lastUse(ctx context.Context, eng *engine.Engine, ref string) (time.Time, error) {
	found, err := inspect(ctx, eng, ref)
	if err != nil || found == nil {
		return time.Time{}, err
	}
	used := found.Metadata.LastTagTime
	if built, err := time.Parse(time.RFC3339Nano, found.Created); err == nil && built.After(used) {
		used = built
	}
	return used, nil
}

// removeImage removes a name, or an image that has none, with the layers under it
// that nothing else uses. The engine refuses while a container, stopped ones too,
// uses it.
func removeImage(ctx context.Context, eng *engine.Engine, ref string) error {
	return eng.Change(ctx, "removing image "+ref, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		return err
	})
}

// unusedImage is a conflict, as the engine's own refusal is, if a container uses an
// image.
func unusedImage(ctx context.Context, eng *engine.Engine, ref string) error {
	return eng.Query(ctx, "asking who uses image "+ref, func(ctx context.Context, c *client.Client) error {
		users, err := c.ContainerList(ctx, container.ListOptions{All: true, Limit: 1, Filters: filters.NewArgs(filters.Arg("ancestor", ref))})
		if err == nil && len(users) > 0 {
			err = errdefs.ErrConflict
		}
		return err
	})
}
