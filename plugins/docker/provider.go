package docker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/plugins/docker/internal/images"
	"github.com/berth-dev/berth/shared/workspace"
)

// cleanupTimeout bounds the removal of what a failed create made, which is done
// also when its caller has left: killing and removing a container is a matter of
// a second, on a busy machine of several.
const cleanupTimeout = time.Minute

// provider is one configured instance.
type provider struct {
	config   checked
	name     string
	version  string
	logger   hclog.Logger
	engine   *engine.Engine
	images   *images.Images
	volumes  *guestvolume.Volumes
	binaries *guests
	events   *events

	facts facts

	mu    sync.Mutex
	rooms map[string]*room // by incarnation: connections that several handles share
	swept time.Time        // when this process swept last
}

var (
	_ sdk.Provider  = (*provider)(nil)
	_ sdk.Lister    = (*provider)(nil)
	_ sdk.Announcer = (*provider)(nil)
)

func newProvider(config checked, env sdk.Env, version string, eng *engine.Engine, binaries *guests) *provider {
	logger := env.Logger
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	p := &provider{
		config: config, name: env.Provider, version: version, logger: logger,
		engine: eng, images: images.New(eng), volumes: guestvolume.New(eng), binaries: binaries,
		rooms: map[string]*room{}, facts: facts{asking: make(chan struct{}, 1)},
	}
	p.events = newEvents(eng, logger)
	return p
}

// Announce tells that workspaces have labels.
func (p *provider) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureLabels}
}

// Close gives up the connections. The containers live on.
func (p *provider) Close() error {
	p.events.close()
	return p.engine.Close()
}

// find looks for a container by its exact name: the engine also takes ids, and
// beginnings of them.
func (p *provider) find(ctx context.Context, name string) (c container.InspectResponse, found bool, err error) {
	c, err = p.inspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return c, false, nil
	case err != nil:
		return c, false, err
	}
	return c, c.Name == "/"+name, nil
}

// findWorkspace looks for a workspace's container: by its name, and where somebody
// has renamed it, by its labels, by which it is listed too.
func (p *provider) findWorkspace(ctx context.Context, id string) (c container.InspectResponse, found bool, err error) {
	c, found, err = p.find(ctx, p.containerName(id))
	if found || err != nil {
		return c, found, err
	}
	label := labelName
	if workspace.IsToken(id) {
		label = labelToken
	}
	var all []container.Summary
	err = p.engine.Query(ctx, "looking for a container that was renamed", func(ctx context.Context, api *client.Client) (err error) {
		all, err = api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
			filters.Arg("label", workspace.LabelProvider+"="+p.name), filters.Arg("label", label+"="+id),
		)})
		return err
	})
	for _, candidate := range all {
		if !isOurs(candidate.Labels) || keyOf(candidate.Labels) != id {
			continue
		}
		copied, err := p.isCopy(ctx, candidate.ImageID, candidate.Labels)
		if err == nil && !copied {
			c, err = p.inspect(ctx, candidate.ID)
		}
		if !copied && !errdefs.IsNotFound(err) { // removed just now
			return c, err == nil, err
		}
	}
	return c, false, err
}

// inspect looks at a container. One that is not there is errdefs' not found.
func (p *provider) inspect(ctx context.Context, id string) (c container.InspectResponse, err error) {
	err = p.engine.Query(ctx, "looking at container "+short(id), func(ctx context.Context, api *client.Client) error {
		c, err = api.ContainerInspect(ctx, id)
		return err
	})
	if errdefs.IsNotFound(err) && !saysNoContainer(err) {
		// A proxy before the engine, say: a workspace is not lost by it.
		return c, fmt.Errorf("looking at container %s: the answer is not an engine's: %s: %w", short(id), err.Error(), workspace.ErrTransient)
	}
	if err == nil && (c.ContainerJSONBase == nil || c.State == nil || c.Config == nil) {
		err = fmt.Errorf("looking at container %s: the engine's answer is incomplete: %w", short(id), workspace.ErrTransient)
	}
	return c, err
}

// saysNoContainer reports whether it is an engine, Docker's or Podman's, that says
// that a container is not there.
func saysNoContainer(err error) bool {
	return strings.Contains(strings.ToLower(err.Error()), "no such container")
}

// remove removes a container with the volumes that the engine named for it. One
// that is gone, or is being removed, is success.
func (p *provider) remove(ctx context.Context, id string) error {
	err := p.engine.Change(ctx, "removing container "+short(id), func(ctx context.Context, api *client.Client) error {
		return api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err): // another removal is under way
		return p.awaitRemoval(ctx, id)
	}
	return err
}

const removalPoll = 50 * time.Millisecond

// awaitRemoval returns when the container is gone.
func (p *provider) awaitRemoval(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, engine.ChangeTimeout,
		fmt.Errorf("container %s is still being removed after %v: %w", short(id), engine.ChangeTimeout, workspace.ErrTransient))
	defer cancel()
	ticker := time.NewTicker(removalPoll)
	defer ticker.Stop()
	for {
		if _, err := p.inspect(ctx, id); errdefs.IsNotFound(err) {
			return nil
		} else if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cleanup removes what a failed create made, whether its caller is there or not.
func (p *provider) cleanup(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := p.remove(ctx, id); err != nil {
		return fmt.Errorf("what was made could not be removed: %w", err)
	}
	return nil
}

// short is an id as people read it. Names stay as they are.
func short(id string) string {
	const hexID, shown = 64, 12
	if len(id) == hexID {
		return id[:shown]
	}
	return id
}
