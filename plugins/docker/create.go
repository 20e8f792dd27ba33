package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// createPatience is how long a create begins anew because somebody else makes
	// or removes the container meanwhile: the engine takes a name at once, shows the
	// container when it has made it, and has the name until a removal is done.
	createPatience = time.Minute
	// createPause is between two looks: making a container takes some 50 ms.
	createPause = 25 * time.Millisecond
)

var (
	// errVanished is a container that was removed while it was being opened.
	errVanished = errors.New("the container was removed meanwhile")
	// errTaken is a name that a container has which the engine does not show.
	errTaken = errors.New("another container of that name is being made or removed")
)

// Create makes a container, or opens the one of the same token or name. The
// container's name is what decides a race, between processes too.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	config, err := sdk.Override(p.config.Config, req.Overrides)
	if err != nil {
		return nil, err
	}
	if err := checkOverride(p.config.Config, config); err != nil {
		return nil, err
	}
	settings, err := oneImage(p.config.Config, config).check()
	if err != nil {
		return nil, err
	}
	id := req.Key()
	if own := p.config.ContainerName; own != "" {
		if req.Name != "" && req.Name != own {
			return nil, p.notConfigured("name", req.Name)
		}
		id = own
	}
	for end := time.Now().Add(createPatience); ; {
		ws, err := p.createOrOpen(ctx, id, settings, req)
		if err == nil {
			return ws, nil
		}
		fail := fmt.Errorf("creating workspace %s: %w", id, err)
		switch {
		case !errors.Is(err, errVanished) && !errors.Is(err, errTaken):
			return nil, fail
		case time.Now().After(end):
			return nil, fmt.Errorf("%w: %w", fail, workspace.ErrTransient)
		}
		select {
		case <-time.After(createPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("creating workspace %s: %w", id, context.Cause(ctx))
		}
	}
}

func (p *provider) notConfigured(what, value string) error {
	return fmt.Errorf("%s %s: this provider's one workspace is the container %s, as its configuration says: %w",
		what, value, p.config.ContainerName, workspace.ErrInvalid)
}

func (p *provider) createOrOpen(ctx context.Context, id string, config checked, req sdk.CreateRequest) (sdk.Workspace, error) {
	look := p.findWorkspace
	if workspace.IsToken(id) { // the host has just made it up, and nobody has renamed it
		look = func(ctx context.Context, id string) (container.InspectResponse, bool, error) {
			return p.find(ctx, p.containerName(id))
		}
	}
	c, found, err := look(ctx, id)
	if err != nil {
		return nil, err
	}
	if found {
		if err := p.mayUse(c, id); err != nil {
			return nil, err
		}
		return p.openMade(ctx, id, c)
	}
	ws, err := p.makeAndOpen(ctx, id, config, "", req)
	var noGuest *guestError
	if errors.As(err, &noGuest) && config.Guest == guestAuto && ctx.Err() == nil {
		p.logger.Warn("a workspace is made without a guest: every command costs an exec of the engine", "workspace", id, "reason", noGuest.cause)
		config.Guest = guestOff
		ws, err = p.makeAndOpen(ctx, id, config, noGuest.cause.Error(), req)
	}
	return ws, err
}

// makeAndOpen makes a container that is not there. One that cannot be opened is
// removed. The reason is why it is to be without a guest, if it is.
func (p *provider) makeAndOpen(ctx context.Context, id string, config checked, reason string, req sdk.CreateRequest) (sdk.Workspace, error) {
	plan, err := p.plan(ctx, config)
	if err != nil {
		return nil, err
	}
	if reason != "" {
		plan.record.Reason = reason
	}
	labels, err := plan.record.labels(p.name, req.Token, p.requestedName(req), plan.guest.digest(), req.Labels)
	if err != nil {
		return nil, err
	}
	made, err := p.make(ctx, plan.describe(p.containerName(id), labels))
	if err != nil {
		return nil, err
	}
	c, err := p.inspect(ctx, made)
	var ws sdk.Workspace
	if err == nil {
		ws, err = p.open(ctx, id, c)
	}
	if err == nil {
		return ws, nil
	}
	if p.stays(ctx, made, req) {
		return nil, err
	}
	return nil, errors.Join(err, p.cleanup(ctx, made))
}

// requestedName is what labelName says: a configured name makes a named one.
func (p *provider) requestedName(req sdk.CreateRequest) string {
	if p.config.ContainerName != "" {
		return p.config.ContainerName
	}
	return req.Name
}

// stays says whether a container whose create failed is left: one that runs, by a
// name by which others may be using it already, when it was only this caller who
// left.
func (p *provider) stays(ctx context.Context, id string, req sdk.CreateRequest) bool {
	if ctx.Err() == nil || p.requestedName(req) == "" {
		return false
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	c, err := p.inspect(look, id)
	return err == nil && c.State.Running
}

// openMade opens a container that was there already. One that was never started
// is a create that another process did not bring to its end, or has not yet: if it
// cannot be, it is removed, as its own maker would.
func (p *provider) openMade(ctx context.Context, id string, c container.InspectResponse) (sdk.Workspace, error) {
	ws, err := p.open(ctx, id, c)
	if err == nil || ctx.Err() != nil || !isOurs(c.Config.Labels) || !neverStarted(c) ||
		errors.Is(err, errVanished) || errors.Is(err, workspace.ErrTransient) {
		return ws, err
	}
	if again, lookErr := p.inspect(ctx, c.ID); lookErr != nil || !neverStarted(again) {
		return nil, err
	}
	return nil, errors.Join(err, p.cleanup(ctx, c.ID))
}

// make creates a container. Another one of that name is errTaken: whose it is
// is seen when it is looked for again. The engine goes on with a create whose
// caller has left, so its answer is waited for in any case.
func (p *provider) make(ctx context.Context, d description) (id string, err error) {
	err = p.engine.Change(context.WithoutCancel(ctx), "creating container "+d.name, func(ctx context.Context, api *client.Client) error {
		made, err := api.ContainerCreate(ctx, d.config, d.host, nil, nil, d.name)
		id = made.ID
		return refused(err)
	})
	switch {
	case err == nil && ctx.Err() != nil:
		return "", errors.Join(context.Cause(ctx), p.cleanup(ctx, id))
	case err == nil:
		return id, nil
	case errdefs.IsConflict(err), strings.Contains(err.Error(), "is already in use"): // Podman's is an internal error
		return "", fmt.Errorf("%w: %w", errTaken, err)
	case errdefs.IsNotFound(err):
		return "", fmt.Errorf("%w: %w", err, workspace.ErrTransient) // an image that was removed just now
	case errors.Is(err, workspace.ErrTransient):
		return "", errors.Join(err, p.forsake(ctx, d)) // it may be there all the same
	}
	return "", err
}

// forsake removes the container of a create whose answer was lost, unless
// somebody has started it meanwhile.
func (p *provider) forsake(ctx context.Context, d description) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	c, found, err := p.find(ctx, d.name)
	if err != nil || !found || c.Config.Labels[labelToken] != d.config.Labels[labelToken] || !neverStarted(c) {
		return nil // the create's own error says that the engine cannot be reached
	}
	return p.remove(ctx, c.ID)
}

// containerName is the name of the container of a workspace of this provider.
func (p *provider) containerName(id string) string {
	if p.config.ContainerName != "" {
		return p.config.ContainerName
	}
	return containerName(id)
}

// mayUse checks that a container is this provider's workspace, or the one that
// its configuration names, whoever made that.
func (p *provider) mayUse(c container.InspectResponse, id string) error {
	if p.config.ContainerName != "" && id == p.config.ContainerName {
		return nil
	}
	return p.owned(c, id)
}
