package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// sweep removes what carries a unique name, containers first: they hold the rest.
func sweep(ctx context.Context, engine *client.Client, unique string) error {
	return errors.Join(
		sweepContainers(ctx, engine, unique),
		sweepVolumes(ctx, engine, unique),
		sweepNetworks(ctx, engine, unique),
		sweepImages(ctx, engine, unique),
	)
}

func sweepContainers(ctx context.Context, engine *client.Client, unique string) error {
	all, err := engine.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range all {
		if carries(unique, c.Labels, c.Names...) {
			err := engine.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
			// In conflict with a removal that is under way: that one removes it.
			if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
				errs = append(errs, fmt.Errorf("container %s: %w", c.ID, err))
			}
		}
	}
	return errors.Join(errs...)
}

func sweepVolumes(ctx context.Context, engine *client.Client, unique string) error {
	all, err := engine.VolumeList(ctx, volume.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range all.Volumes {
		if carries(unique, v.Labels, v.Name) {
			if err := engine.VolumeRemove(ctx, v.Name, false); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func sweepNetworks(ctx context.Context, engine *client.Client, unique string) error {
	all, err := engine.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range all {
		if carries(unique, n.Labels, n.Name) {
			if err := engine.NetworkRemove(ctx, n.ID); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("network %s: %w", n.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func sweepImages(ctx context.Context, engine *client.Client, unique string) error {
	all, err := engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range all {
		refs := []string{i.ID} // with all its names
		if !carries(unique, i.Labels) {
			// An image of others may have been given a name that carries it: only that
			// name goes.
			refs = slices.DeleteFunc(slices.Clone(i.RepoTags), func(tag string) bool { return !carries(unique, nil, tag) })
		}
		for _, ref := range refs {
			_, err := engine.ImageRemove(ctx, ref, image.RemoveOptions{Force: true, PruneChildren: true})
			if err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("image %s: %w", ref, err))
			}
		}
	}
	return errors.Join(errs...)
}
