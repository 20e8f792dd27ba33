//go:build docker

package execpath_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// workDir is where commands start.
const workDir = "/workspace"

// box says which containers a provider makes.
type box struct {
	image, user string
	rootInit    bool // the container's own first process is root's
	readOnly    bool
	tmpfs       map[string]string
	volumeSize  string   // of the working directory, in memory of the engine's machine; no limit if empty
	env         []string // of the container's description
}

// bare says whether there is nothing in its image.
func (b box) bare() bool { return strings.Contains(b.image, "scratch") }

// config is the provider's.
type config struct {
	Env map[string]string `json:"env"`
}

// provider makes containers and nothing else: it is for the tests of this package.
type provider struct {
	engine *engine.Engine
	unique string
	box    box
}

// plugin is a plugin whose containers carry unique.
func plugin(t testing.TB, b box) sdk.Plugin[config] {
	t.Helper()
	unique := enginetest.Unique(t)
	b.image = enginetest.Image(t, b.image)
	e, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return sdk.Plugin[config]{
		Name: "execpath", Version: "test", Workspace: (*execpath.Workspace)(nil),
		New: func(context.Context, config, sdk.Env) (sdk.Provider, error) {
			return &provider{engine: e, unique: unique, box: b}, nil
		},
	}
}

func (p *provider) name(key string) string { return p.unique + "-" + key }

func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	key := req.Key()
	cfg := &container.Config{
		Image: p.box.image, User: p.box.user, Entrypoint: []string{"sleep", "100000"}, Env: p.box.env,
		Labels: map[string]string{"test": p.unique, "name": req.Name},
	}
	if p.box.rootInit {
		cfg.User = "0"
	}
	if p.box.bare() {
		cfg.Entrypoint = []string{"/probe", "sleep", "24h"}
	}
	host := &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: p.box.readOnly, Tmpfs: p.box.tmpfs, Init: new(bool),
		Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: p.name(key), Target: workDir}},
	}
	*host.Init = true
	if p.box.volumeSize != "" {
		host.Mounts[0].VolumeOptions = &mount.VolumeOptions{DriverConfig: &mount.Driver{
			Name: "local", Options: map[string]string{"type": "tmpfs", "device": "tmpfs", "o": "size=" + p.box.volumeSize},
		}}
	}
	var id string
	err := p.engine.Change(ctx, "creating a container", func(ctx context.Context, c *client.Client) error {
		created, err := c.ContainerCreate(ctx, cfg, host, nil, nil, p.name(key))
		if errdefs.IsConflict(err) {
			return nil
		}
		id = created.ID
		return err
	})
	if err != nil {
		return nil, err
	}
	ws, err := p.Attach(ctx, key)
	if err == nil && id != "" && p.box.user != "" && !p.box.bare() {
		err = p.own(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return ws, nil
}

// own gives the work directory to the user.
func (p *provider) own(ctx context.Context, id string) error {
	x, err := p.engine.Exec(ctx, id, engine.ExecOptions{Cmd: []string{"chown", p.box.user, workDir}, User: "0"})
	if err != nil {
		return err
	}
	code, err := x.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("chown ended with %d", code)
	}
	return errors.Join(err, x.Close())
}

func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	var containerID string
	err := p.engine.Change(ctx, "starting container "+id, func(ctx context.Context, c *client.Client) error {
		state, err := c.ContainerInspect(ctx, p.name(id))
		if err != nil {
			return err
		}
		containerID = state.ID
		if state.State.Running {
			return nil
		}
		return c.ContainerStart(ctx, containerID, container.StartOptions{})
	})
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("container %s: %w", id, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(p.box.user) // a number, or root's
	return execpath.New(ctx, execpath.Config{Engine: p.engine, ContainerID: containerID, ID: id, WorkingDir: workDir, User: p.box.user, UID: uid, GID: uid})
}

func (p *provider) Destroy(ctx context.Context, id string) error {
	return p.engine.Change(ctx, "removing container "+id, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerRemove(ctx, p.name(id), container.RemoveOptions{Force: true})
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
			err = nil
		}
		return errors.Join(err, c.VolumeRemove(ctx, p.name(id), true))
	})
}
