package guestvolume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// lockPoll is how often one who waits for the filling by another process
	// looks: it takes a fraction of a second.
	lockPoll = 100 * time.Millisecond
	// lockStale is when a filling is given up for dead, and done by another: two
	// at once write the same bytes, so a slow one does no lasting harm.
	lockStale = time.Minute
	// cleanupTimeout bounds the removal of a container that was never started,
	// also when the caller has left.
	cleanupTimeout = 30 * time.Second

	fillDir = "/guest"
)

// fill puts the binary into the volume, through a container that is never
// started. The container's name is the lock between processes.
func (v *Volumes) fill(ctx context.Context, bin Binary, image string) error {
	name := lockPrefix + bin.Digest[:digestPart]
	id, err := v.claim(ctx, bin, name, image)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = v.remove(ctx, id) // a stale lock, which the next one breaks
	}()
	// Another process may have done it while we waited.
	if same, err := v.holds(ctx, bin, id, fillDir); same || err != nil {
		return err
	}
	if err := v.put(ctx, bin, id, fillDir); err != nil {
		return err
	}
	same, err := v.holds(ctx, bin, id, fillDir)
	if err == nil && !same {
		err = errors.New("what was copied into it is not there")
	}
	return err
}

// claim makes the container that is the lock, once nobody else has it.
func (v *Volumes) claim(ctx context.Context, bin Binary, name, image string) (id string, err error) {
	var holder string
	var since time.Time // by our own clock: the engine may be elsewhere
	for {
		err := v.engine.Change(ctx, "making container "+name, func(ctx context.Context, c *client.Client) error {
			made, err := c.ContainerCreate(ctx,
				&container.Config{
					Image: image, Entrypoint: []string{fillDir + "/" + bin.Name},
					Labels: map[string]string{workspace.LabelManaged: "true", workspace.LabelPrefix + "helper": "true"},
				},
				&container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{
					Type: mount.TypeVolume, Source: Name(bin.Digest), Target: fillDir,
					VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: Labels(bin.Digest)},
				}}}, nil, nil, name)
			id = made.ID
			return err
		})
		if err == nil {
			return id, nil
		}
		if !errdefs.IsConflict(err) && !strings.Contains(err.Error(), "is already in use") { // Podman's is an internal error
			return "", err
		}
		now, err := v.holder(ctx, name)
		if err != nil {
			return "", err
		}
		switch {
		case now == "":
			continue
		case now != holder:
			holder, since = now, time.Now()
		case time.Since(since) > v.stale:
			if err := v.remove(ctx, now); err != nil {
				return "", err
			}
			continue
		}
		if err := pause(ctx); err != nil {
			return "", fmt.Errorf("waiting for container %s: %w", name, err)
		}
	}
}

// holder is the container that is the lock now, or empty.
func (v *Volumes) holder(ctx context.Context, name string) (id string, err error) {
	err = v.engine.Query(ctx, "looking at container "+name, func(ctx context.Context, c *client.Client) error {
		found, err := c.ContainerInspect(ctx, name)
		if errdefs.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "no such container") { // Podman may fail to find what it is removing
			return nil
		}
		if err == nil {
			id = found.ID
		}
		return err
	})
	return id, err
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(lockPoll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *Volumes) remove(ctx context.Context, id string) error {
	err := v.engine.Change(ctx, "removing container "+id, func(ctx context.Context, c *client.Client) error {
		return c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // gone, or another removes it
		return nil
	}
	return err
}
