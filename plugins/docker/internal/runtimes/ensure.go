package runtimes

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/config"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/images"
	"github.com/berth-dev/berth/shared/workspace"
)

// buildTimeout is for a whole build: long enough to compile something large, and
// an end to one that hangs in a download.
const buildTimeout = time.Hour

// Image is a runtime that an engine has.
type Image struct {
	// Ref is the image's reference.
	Ref string
	// Found is what the engine says of it.
	Found image.InspectResponse
	// WorkDir is where commands start.
	WorkDir string
	// Env is for every command, and not in the image.
	Env map[string]string
}

// Ensure has the engine pull or build the image unless it has it. Several that
// ask at once, in other processes too, end up with one image. Another recipe of
// the same name may remove the image later, once nothing uses it: whoever then
// finds it missing asks again.
//
// A build that fails is told with its step and the end of its output. A build of
// a context that ends is stopped. A nil report is none.
func (r Runtime) Ensure(ctx context.Context, eng *engine.Engine, imgs *images.Images, report func(sdk.Progress)) (Image, error) {
	if report == nil {
		report = func(sdk.Progress) {}
	}
	made := Image{Ref: r.Image, WorkDir: r.WorkDir, Env: maps.Clone(r.Env)}
	var err error
	if r.Image != "" {
		made.Found, err = imgs.Ensure(ctx, r.Image, report)
	} else {
		made.Ref = r.reference()
		made.Found, err = r.ensureBuilt(ctx, eng, imgs, report)
	}
	if err != nil {
		return Image{}, fmt.Errorf("runtime %s: %w", r.Name, err)
	}
	return made, nil
}

func (r Runtime) ensureBuilt(ctx context.Context, eng *engine.Engine, imgs *images.Images, report func(sdk.Progress)) (image.InspectResponse, error) {
	var none image.InspectResponse
	if found, err := r.find(ctx, eng); err != nil || found != nil {
		return deref(found), err
	}
	unlock, err := lock(ctx, r.digest(), func() {
		report(sdk.Progress{Text: "waiting for another build of runtime " + r.Name})
	})
	if err != nil {
		return none, err
	}
	defer unlock()
	// Whoever held the lock may have built it.
	if found, err := r.find(ctx, eng); err != nil || found != nil {
		return deref(found), err
	}
	base, err := imgs.Ensure(ctx, r.BaseImage, report)
	if err != nil {
		return none, err
	}
	id, err := r.build(ctx, eng, base, report)
	if err != nil {
		return none, err
	}
	built, err := r.name(ctx, eng, id)
	if err != nil {
		return none, err
	}
	r.removeSuperseded(ctx, eng, KeepUnused)
	return *built, nil
}

// deref is the zero value for none.
func deref(found *image.InspectResponse) image.InspectResponse {
	if found == nil {
		return image.InspectResponse{}
	}
	return *found
}

// find returns the image, or nil if the engine has none of this recipe.
func (r Runtime) find(ctx context.Context, eng *engine.Engine) (*image.InspectResponse, error) {
	found, err := inspect(ctx, eng, r.reference())
	if err != nil || found == nil {
		return nil, err
	}
	if found.Config == nil || found.Config.Labels[labelDigest] != r.digest() {
		return nil, nil // someone's tag of another image: it is replaced
	}
	markUsed(ctx, eng, r.reference(), found)
	return found, nil
}

// inspect returns nil for an image that the engine does not have.
func inspect(ctx context.Context, eng *engine.Engine, ref string) (*image.InspectResponse, error) {
	var found image.InspectResponse
	err := eng.Query(ctx, "looking for image "+ref, func(ctx context.Context, c *client.Client) (err error) {
		found, err = c.ImageInspect(ctx, ref)
		return err
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// build makes the image, which has no name yet, and returns its id.
func (r Runtime) build(ctx context.Context, eng *engine.Engine, base image.InspectResponse, report func(sdk.Progress)) (string, error) {
	baseUser := ""
	if base.Config != nil {
		baseUser = base.Config.User
	}
	if baseUser != "" && !userPattern.MatchString(baseUser) {
		return "", fmt.Errorf("base image %s: its USER %q is no name or number of a user: %w", r.BaseImage, baseUser, workspace.ErrInvalid)
	}
	steps := r.instructions(baseUser)
	source, err := buildContext(dockerfile(steps))
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeoutCause(ctx, buildTimeout, fmt.Errorf("the build has taken more than %v", buildTimeout))
	defer cancel()
	response, err := eng.Client().ImageBuild(limited, source, build.ImageBuildOptions{
		// The classic builder: the other one needs a session with its client.
		Version: build.BuilderV1,
		// No tag yet: the name is given to an image that is whole.
		Labels:      map[string]string{labelDigest: r.digest()},
		BuildArgs:   proxies(eng),
		Remove:      true,
		ForceRemove: true,
	})
	if err != nil {
		return "", r.buildError(ctx, limited, eng, err)
	}
	defer response.Body.Close()
	id, err := (&buildLog{steps: steps, report: func(step int, says string) {
		report(sdk.Progress{
			Text: fmt.Sprintf("runtime %s: %s", r.Name, says), Done: int64(min(step, len(steps))), Total: int64(len(steps)), Unit: "steps",
		})
	}}).read(response.Body)
	if err != nil {
		return "", r.buildError(ctx, limited, eng, err)
	}
	return id, nil
}

func (r Runtime) buildError(ctx, limited context.Context, eng *engine.Engine, err error) error {
	if ctx.Err() == nil && limited.Err() != nil {
		err = errors.Join(context.Cause(limited), err)
	}
	return eng.Error(ctx, "building "+r.reference(), err)
}

// name tags a built image, unless one of the same recipe that another machine's
// process built meanwhile has the name. It returns the one that has it.
func (r Runtime) name(ctx context.Context, eng *engine.Engine, id string) (*image.InspectResponse, error) {
	ref := r.reference()
	found, err := r.find(ctx, eng)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if err := eng.Change(ctx, "naming image "+ref, func(ctx context.Context, c *client.Client) error {
			return c.ImageTag(ctx, id, ref)
		}); err != nil {
			return nil, err
		}
		if found, err = inspect(ctx, eng, ref); err != nil {
			return nil, err
		}
		if found == nil {
			return nil, fmt.Errorf("image %s was removed as soon as it was built: %w", ref, workspace.ErrTransient)
		}
	}
	if found.ID != id {
		// Theirs is as good. One that a container uses already stays.
		_ = removeImage(ctx, eng, id)
	}
	return found, nil
}

// proxies are what Docker's own client gives to a build, from its configuration.
// The builder keeps them out of the image's history.
func proxies(eng *engine.Engine) map[string]*string {
	file, err := config.Load(engine.ConfigDir())
	if err != nil {
		return nil // an unreadable one is told where credentials are needed
	}
	return file.ParseProxyConfig(eng.Address(), nil)
}

// buildContext is the archive that a build is made from: the Dockerfile alone.
func buildContext(dockerfile string) (*bytes.Buffer, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	if err := t.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return nil, err
	}
	if _, err := t.Write([]byte(dockerfile)); err != nil {
		return nil, err
	}
	return &b, t.Close()
}
