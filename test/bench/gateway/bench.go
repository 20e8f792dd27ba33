package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/internal/predecessor"
)

// closeTimeout bounds the removal of all that was made.
const closeTimeout = 3 * time.Minute

// bench is both services over one engine, what calls them, and a host in this process.
type bench struct {
	engine          *client.Client
	berth, sandboxd *service
	// client is the predecessor's own, with a session in each service.
	client *pythonClient
	// overBerth and overSandboxd are sessions called by plain HTTP.
	overBerth, overSandboxd *session
	host                    *host.Host
	own                     workspace.Workspace // the host's
	// Names of what is made, by which it is found: of the gateway's provider, the
	// host's, and sandboxd's image.
	provider, hostProvider, image string
	undo                          []func(context.Context) error
}

func open(ctx context.Context, bin, ref string) (_ *bench, err error) {
	name := "bench-" + strings.ToLower(rand.Text()[:10])
	b := &bench{provider: name, hostProvider: name + "-host", image: name + ":bench"}
	defer func() { //nolint:contextcheck // what was made is removed, though the run was cancelled
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, err
	}
	b.later(func(context.Context) error { return os.RemoveAll(dir) })
	if b.engine, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
		return nil, err
	}
	b.later(func(context.Context) error { return b.engine.Close() })
	if err := b.engine.ImageTag(ctx, ref, b.image); err != nil {
		return nil, err
	}
	b.later(func(ctx context.Context) error {
		_, err := b.engine.ImageRemove(ctx, b.image, image.RemoveOptions{})
		return err
	})
	b.later(b.sweep)
	if err := b.start(ctx, bin, dir, ref); err != nil {
		return nil, err
	}
	return b, b.openSessions(ctx)
}

// later is done at the end, what was said last first.
func (b *bench) later(undo func(context.Context) error) { b.undo = append(b.undo, undo) }

// start starts the services, and the host.
func (b *bench) start(ctx context.Context, bin, dir, ref string) error {
	fmt.Fprintln(os.Stderr, "starting both services, after installing the predecessor if need be")
	python, err := predecessor.Install(ctx)
	if err != nil {
		return err
	}
	config := map[string]any{"image": ref, "network_mode": "none"}
	ended := func(s *service) func(context.Context) error {
		return func(context.Context) error { s.close(); return nil }
	}
	b.berth, err = startGateway(ctx, bin, dir, b.provider, config)
	b.later(ended(b.berth))
	if err != nil {
		return err
	}
	b.sandboxd, err = startSandboxd(ctx, python, dir, b.image)
	b.later(ended(b.sandboxd))
	if err != nil {
		return err
	}
	b.host, err = host.New(host.Config{
		PluginDirs: []string{bin},
		DataDir:    filepath.Join(dir, "host"),
		Providers:  map[string]host.Provider{b.hostProvider: {Plugin: plugin, Config: config}},
	})
	if err != nil {
		return err
	}
	b.later(func(context.Context) error { return b.host.Close() })
	b.client, err = startClient(ctx, python, map[string]*service{columnBerth: b.berth, columnSandboxd: b.sandboxd})
	if b.client != nil {
		b.later(func(context.Context) error { return b.client.close() })
	}
	return err
}

// openSessions opens those that are called by plain HTTP, and the host's workspace.
func (b *bench) openSessions(ctx context.Context) error {
	for _, each := range []struct {
		in   *service
		into **session
	}{{b.berth, &b.overBerth}, {b.sandboxd, &b.overSandboxd}} {
		s, err := each.in.open(ctx)
		if err != nil {
			return err
		}
		*each.into = s
		b.later(s.purge)
		if err := s.fill(ctx); err != nil {
			return err
		}
	}
	ws, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	b.own = ws
	b.later(func(ctx context.Context) error { return b.destroy(ctx, ws) })
	return errors.Join(
		ws.WriteFile(ctx, "small", content()[:small]),
		ws.WriteFile(ctx, "large", content()[:large]),
		succeed(ctx, ws, workspace.Command{Script: linksScript}),
	)
}

// fresh creates a workspace of the host's and runs a first command in it.
func (b *bench) fresh(ctx context.Context) (workspace.Workspace, error) {
	ws, err := b.host.Workspace(b.hostProvider)
	if err != nil {
		return nil, err
	}
	return ws, succeed(ctx, ws, noop)
}

func (b *bench) destroy(ctx context.Context, ws workspace.Workspace) error {
	ref, _ := ws.Ref()
	return b.host.Destroy(ctx, ref)
}

// close removes all that was made. What should have been gone by itself is an error.
func (b *bench) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(b.undo) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

// containers are those that were made through a provider, or from an image.
func (b *bench) containers(ctx context.Context, of string) (ids []string, err error) {
	all, err := b.engine.ContainerList(ctx, container.ListOptions{All: true})
	for _, c := range all {
		if c.Labels[workspace.LabelProvider] == of || c.Image == of {
			ids = append(ids, c.ID)
		}
	}
	return ids, err
}

// sweep finds nothing on the engine: sessions and workspaces have been destroyed.
func (b *bench) sweep(ctx context.Context) error {
	var errs []error
	for _, of := range []string{b.provider, b.hostProvider, b.image} {
		ids, err := b.containers(ctx, of)
		errs = append(errs, err)
		for _, id := range ids {
			errs = append(errs, fmt.Errorf("a container of %s was left on the engine: %s", of, id))
			if err := b.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !errdefs.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	for _, provider := range []string{b.provider, b.hostProvider} {
		left, err := b.engine.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", workspace.LabelProvider+"="+provider))})
		errs = append(errs, err)
		for _, v := range left.Volumes {
			errs = append(errs, fmt.Errorf("a volume of %s was left on the engine: %s", provider, v.Name), b.engine.VolumeRemove(ctx, v.Name, true))
		}
	}
	return errors.Join(errs...)
}
