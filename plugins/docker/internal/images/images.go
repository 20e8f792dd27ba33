// Package images sees to it that an engine has an image: it pulls what is
// missing, with the credentials that Docker's own client would use, and tells
// how far it is.
package images

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

// Images are an engine's. They may be used concurrently.
type Images struct {
	engine *engine.Engine
	// silence and rateLimitPause are [pullSilence] and the constant of that name.
	silence, rateLimitPause time.Duration

	mu    sync.Mutex
	pulls map[string]*pull
}

// New returns the images of an engine.
func New(eng *engine.Engine) *Images {
	return &Images{engine: eng, silence: pullSilence, rateLimitPause: rateLimitPause, pulls: map[string]*pull{}}
}

// Ensure returns what the engine says of an image, which it pulls if it is not
// there. Callers that want the same image at once share one pull. A nil report is
// none; others are called often, and are not to wait.
//
// An image that cannot be had as it is named, or with these credentials, is
// [workspace.ErrInvalid]; a registry that does not answer, or asks to come again
// later, is [workspace.ErrTransient]; a full disk is [syscall.ENOSPC].
func (s *Images) Ensure(ctx context.Context, ref string, report func(sdk.Progress)) (image.InspectResponse, error) {
	parsed, err := reference.ParseAnyReference(ref)
	if err != nil {
		return image.InspectResponse{}, fmt.Errorf("image %q: %s; it has to be like python:3.12-slim or registry.example.com/team/image:tag: %w", ref, err.Error(), workspace.ErrInvalid)
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		ref = parsed.String() // an id, which may have come without its algorithm
	}
	found, err := s.inspect(ctx, ref)
	if !errdefs.IsNotFound(err) {
		return found, err
	}
	if !ok {
		return image.InspectResponse{}, fmt.Errorf("image %s: the engine at %s has none of this id, and an id cannot be pulled: name the image: %w", ref, s.engine.Address(), workspace.ErrInvalid)
	}
	named = reference.TagNameOnly(named)
	if err := s.share(ctx, named, report); err != nil {
		return image.InspectResponse{}, err
	}
	found, err = s.inspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("image %s: it was pulled, and the engine at %s does not have it: was it removed meanwhile?: %w", ref, s.engine.Address(), workspace.ErrTransient)
	}
	if err == nil && report != nil {
		s.warnOfPlatform(ctx, ref, found, report)
	}
	return found, err
}

// warnOfPlatform tells of an image for another processor. It is no error: many
// engines emulate others.
func (s *Images) warnOfPlatform(ctx context.Context, ref string, found image.InspectResponse, report func(sdk.Progress)) {
	var version types.Version
	err := s.engine.Query(ctx, "asking the engine for its platform", func(ctx context.Context, c *client.Client) (err error) {
		version, err = c.ServerVersion(ctx)
		return err
	})
	if err == nil && version.Arch != "" && found.Architecture != "" && version.Arch != found.Architecture {
		report(sdk.Progress{Text: fmt.Sprintf("image %s is for %s, and the engine runs on %s: its programs work only if that emulates the other", ref, found.Architecture, version.Arch)})
	}
}

func (s *Images) inspect(ctx context.Context, ref string) (image.InspectResponse, error) {
	var found image.InspectResponse
	err := s.engine.Query(ctx, "looking for image "+ref, func(ctx context.Context, c *client.Client) (err error) {
		found, err = c.ImageInspect(ctx, ref)
		return err
	})
	return found, err
}

// pull is one that may have several callers.
type pull struct {
	done chan struct{} // closed at its end
	// err is set before. If the caller that pulled gave up, it says nothing of the
	// pull.
	err    error
	gaveUp bool

	mu      sync.Mutex
	reports map[*func(sdk.Progress)]bool
	last    sdk.Progress
}

// share pulls an image, or waits for the pull of it that is under way. If the
// caller that pulls gives up, another one of those who wait goes on: the engine
// keeps the layers that it has.
func (s *Images) share(ctx context.Context, named reference.Named, report func(sdk.Progress)) error {
	for {
		s.mu.Lock()
		p, underway := s.pulls[named.String()]
		if !underway {
			p = &pull{done: make(chan struct{}), reports: map[*func(sdk.Progress)]bool{}}
			s.pulls[named.String()] = p
		}
		s.mu.Unlock()

		leave := p.join(report)
		if !underway {
			p.err = s.pull(ctx, named, p.report)
			p.gaveUp = p.err != nil && ctx.Err() != nil
			s.mu.Lock()
			delete(s.pulls, named.String())
			s.mu.Unlock()
			close(p.done)
			leave()
			return p.err
		}
		select {
		case <-p.done:
			leave()
		case <-ctx.Done():
			leave()
			return fmt.Errorf("pulling image %s: %w", reference.FamiliarString(named), context.Cause(ctx))
		}
		if !p.gaveUp {
			return p.err
		}
	}
}

// join adds a caller who is told how far the pull is, from where it stands now.
func (p *pull) join(report func(sdk.Progress)) (leave func()) {
	if report == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports[&report] = true
	if p.last.Text != "" {
		report(p.last)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.reports, &report)
	}
}

func (p *pull) report(progress sdk.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = progress
	for report := range p.reports {
		(*report)(progress)
	}
}
