package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// maxPasswd bounds what is read of an image's list of users.
const maxPasswd = 4 << 20

// plan is what a new workspace will be.
type plan struct {
	config   checked
	imageRef string
	image    image.InspectResponse
	workDir  string
	user     string // as the engine is told, empty for the image's own
	who      identity
	guest    placement
	podman   bool // the engine is one
	record   record
}

// plan makes the image available and decides everything that goes into the
// container's description.
func (p *provider) plan(ctx context.Context, config checked) (*plan, error) {
	pl := &plan{config: config, imageRef: cmp.Or(config.Image, DefaultImage), user: config.User, workDir: cmp.Or(config.WorkDir, DefaultWorkDir)}
	var err error
	if err = p.prepareImage(ctx, pl); err != nil {
		return nil, err
	}
	if config.ReadOnly && pl.workDir == "/" {
		return nil, invalidKey("work_dir", "/ cannot be written with read_only: want a folder below it")
	}
	if within(pl.workDir, guestRoot) {
		return nil, invalidKey("work_dir", "%s: the guest is at %s: choose another path", pl.workDir, guestRoot)
	}
	if pl.who, err = p.identify(ctx, pl); err != nil {
		if pl.config.User != "" && errors.Is(err, workspace.ErrInvalid) {
			return nil, fmt.Errorf("config key user: %w", err)
		}
		return nil, err
	}
	if pl.guest, err = p.place(ctx, config); err != nil {
		return nil, err
	}
	if pl.podman, err = p.isPodman(ctx); err != nil {
		return nil, err
	}
	pl.record.WorkDir, pl.record.User = pl.workDir, pl.user
	pl.record.UID, pl.record.GID = pl.who.uid, pl.who.gid
	pl.record.ReadOnly = config.ReadOnly
	pl.record.Guest, pl.record.Reason = pl.guest.how, pl.guest.reason
	return pl, nil
}

// facts are what this process has found out about the engine and its images, which
// does not change.
type facts struct {
	mu     sync.Mutex
	arch   string              // the engine's, in Go's words
	podman bool                // it is one; known when arch is
	users  map[string]identity // by image id and user
	asking chan struct{}       // holds one who asks for the engine's version
}

// identify finds out who the container's user is.
func (p *provider) identify(ctx context.Context, pl *plan) (identity, error) {
	user := pl.user
	if user == "" && pl.image.Config != nil {
		user = pl.image.Config.User
	}
	if who, whole, ok := numeric(user); ok && whole {
		return who, nil
	}
	// Volumes may stand over the files.
	key := fmt.Sprintf("%s %s %q", pl.image.ID, user, pl.config.binds)
	p.facts.mu.Lock()
	who, known := p.facts.users[key]
	p.facts.mu.Unlock()
	if known {
		return who, nil
	}
	err := p.withHelper(ctx, pl.imageRef, &container.HostConfig{Binds: pl.config.binds}, func(id string) (err error) {
		who, err = p.lookUp(ctx, id, user)
		return err
	})
	if err != nil {
		return identity{}, err
	}
	p.facts.mu.Lock()
	defer p.facts.mu.Unlock()
	if p.facts.users == nil {
		p.facts.users = map[string]identity{}
	}
	p.facts.users[key] = who
	return who, nil
}

// identifyIn finds out who a user is in a container that is there.
func (p *provider) identifyIn(ctx context.Context, c container.InspectResponse, user string) (identity, error) {
	if who, whole, ok := numeric(user); ok && whole {
		return who, nil
	}
	return p.lookUp(ctx, c.ID, user)
}

// lookUp asks the passwd and the group file in a container.
func (p *provider) lookUp(ctx context.Context, id, user string) (identity, error) {
	passwd, err := p.readFile(ctx, id, "/etc/passwd")
	if err != nil {
		return identity{}, fmt.Errorf("finding out who user %s is: %w", user, err)
	}
	group, err := p.readFile(ctx, id, "/etc/group")
	if err != nil {
		return identity{}, fmt.Errorf("finding out who user %s is: %w", user, err)
	}
	return resolveUser(user, passwd, group)
}

// withHelper lends a container that is never started, through which an image or a
// volume can be read and written.
func (p *provider) withHelper(ctx context.Context, imageRef string, host *container.HostConfig, use func(id string) error) error {
	host.NetworkMode = container.NetworkMode("none")
	var id string
	err := p.engine.Change(context.WithoutCancel(ctx), "making a container of image "+imageRef, func(ctx context.Context, api *client.Client) error {
		made, err := api.ContainerCreate(ctx, &container.Config{
			Image: imageRef, Entrypoint: []string{"/"}, // never run
			Labels: map[string]string{workspace.LabelManaged: "true", labelHelper: "true", workspace.LabelProvider: p.name},
		}, host, nil, nil, "")
		id = made.ID
		return refused(err)
	})
	if err != nil {
		return err
	}
	return errors.Join(use(id), p.cleanup(ctx, id))
}

// readFile reads a file of a container through the archive; one that is not there
// is empty.
func (p *provider) readFile(ctx context.Context, id, path string) (content []byte, err error) {
	err = p.engine.Query(ctx, "reading "+path, func(ctx context.Context, api *client.Client) error {
		archive, _, err := api.CopyFromContainer(ctx, id, path)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer archive.Close()
		files := tar.NewReader(archive)
		header, err := files.Next()
		if err != nil || header.Typeflag != tar.TypeReg {
			return err
		}
		var b bytes.Buffer
		_, err = io.Copy(&b, io.LimitReader(files, maxPasswd))
		content = b.Bytes()
		return err
	})
	return content, err
}

// architecture is the engine's.
func (p *provider) architecture(ctx context.Context) (arch string, err error) {
	p.facts.mu.Lock()
	arch = p.facts.arch
	p.facts.mu.Unlock()
	if arch != "" {
		return arch, nil
	}
	// One after the other, so that one asks for all: Podman asks its machine's package
	// manager first, which is slow.
	select {
	case p.facts.asking <- struct{}{}:
		defer func() { <-p.facts.asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	p.facts.mu.Lock()
	arch = p.facts.arch
	p.facts.mu.Unlock()
	if arch != "" {
		return arch, nil
	}
	podman := false
	err = p.engine.Query(ctx, "asking the engine for its architecture", func(ctx context.Context, api *client.Client) error {
		version, err := api.ServerVersion(ctx)
		arch = version.Os + "-" + version.Arch
		podman = slices.ContainsFunc(version.Components, func(c types.ComponentVersion) bool { return strings.HasPrefix(c.Name, "Podman") })
		return err
	})
	if err != nil {
		return "", err
	}
	p.facts.mu.Lock()
	defer p.facts.mu.Unlock()
	p.facts.arch, p.facts.podman = arch, podman
	return arch, nil
}

// isPodman says whether the engine is Podman, which knows fewer options.
func (p *provider) isPodman(ctx context.Context) (bool, error) {
	if _, err := p.architecture(ctx); err != nil {
		return false, err
	}
	p.facts.mu.Lock()
	defer p.facts.mu.Unlock()
	return p.facts.podman, nil
}
