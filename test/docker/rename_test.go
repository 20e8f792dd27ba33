//go:build docker

package docker_test

import (
	"errors"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// A container that somebody has renamed is listed under its ref, and so its ref has
// to lead to it: a destroy that does not find it must not be a success.
func TestRename_TheRefStillLeadsToIt(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	for name, options := range map[string][]workspace.Option{
		"by its token": nil,
		"by its name":  {workspace.WithName("renamed-" + b.provider)},
	} {
		t.Run(name, func(t *testing.T) {
			ws := b.open(t, options...)
			output(t, ws, "echo kept > f")
			r := ref(t, ws)
			id := b.inspect(t, r).ID
			if err := b.engine.ContainerRename(t.Context(), id, "elsewhere-"+r.ID); err != nil {
				t.Fatal(err)
			}
			// As another process would, which does not know the container's id.
			h := b.newHost(t, nil)
			again, err := h.Attach(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, again, "cat f"); got != "kept\n" {
				t.Errorf("the renamed container holds %q", got)
			}
			if options != nil {
				same, err := h.Workspace(b.provider, options...)
				if err != nil {
					t.Fatal(err)
				}
				if got := output(t, same, "cat f"); got != "kept\n" {
					t.Errorf("the name leads to another container, with %q", got)
				}
			}
			if err := h.Destroy(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := b.engine.ContainerInspect(t.Context(), id); err == nil {
				t.Error("a destroy has left the renamed container")
			}
			gone, err := b.newHost(t, nil).Attach(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := gone.WorkingDir(t.Context()); !errors.Is(err, workspace.ErrUnavailable) {
				t.Errorf("after that: %v, want ErrUnavailable", err)
			}
		})
	}
}
