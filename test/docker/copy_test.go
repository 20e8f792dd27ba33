//go:build docker

package docker_test

import (
	"errors"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

// An image that somebody makes of a workspace's container, by docker commit, has all
// of its labels, and so have the containers that they make of it: these are theirs
// (contract L6).
func TestCopy_OfAWorkspaceIsNone(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	r := ref(t, b.open(t))
	original := b.inspect(t, r).ID
	image, err := b.engine.ContainerCommit(t.Context(), original, container.CommitOptions{Reference: b.provider + ":copy"})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := b.engine.ContainerCreate(t.Context(), &container.Config{Image: image.ID}, nil, nil, nil, "theirs-"+b.provider)
	if err != nil {
		t.Fatal(err)
	}
	h := b.newHost(t, nil)
	listed := 0
	for info, err := range h.List(t.Context(), b.provider, workspace.ListOptions{}) {
		if listed++; err != nil || info.Ref != r || info.Details["container"] != original[:12] {
			t.Errorf("listed %+v, %v", info, err)
		}
	}
	if listed != 1 {
		t.Errorf("%d are listed, want 1", listed)
	}
	for range 2 { // the second one finds no container of the ref's name
		if err := h.Destroy(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.engine.ContainerInspect(t.Context(), original); err == nil {
		t.Error("a destroy has left the workspace")
	}
	if _, err := b.engine.ContainerInspect(t.Context(), theirs.ID); err != nil {
		t.Errorf("a destroy has removed somebody else's container: %v", err)
	}
	gone, err := h.Attach(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.WorkingDir(t.Context()); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("attaching to what is gone: %v, want ErrUnavailable", err)
	}
}
