//go:build docker

package docker_test

import (
	"archive/tar"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestForeign_WithoutAShellThereAreFiles has somebody else's container of an image
// with nothing in it, into which no guest can be put.
func TestForeign_WithoutAShellThereAreFiles(t *testing.T) {
	t.Parallel()
	b := newBed(t, "scratch", nil)
	box := b.provider + "-box"
	id := b.plain(t, box, &container.Config{
		Entrypoint: []string{"/probe", "sleep", "24h"}, WorkingDir: "/data", User: "1000:100",
	}, &container.HostConfig{
		ReadonlyRootfs: true, NetworkMode: "none",
		Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: b.provider + "-data", Target: "/data"}},
	})
	h := b.newHost(t, map[string]any{"container_name": box})
	ws, err := h.Workspace(b.provider)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"a/file", "a/raw\xff"} {
		if err := ws.WriteFile(ctx, name, []byte("content of "+name)); err != nil {
			t.Fatal(err)
		}
		if got, err := ws.ReadFile(ctx, name); err != nil || string(got) != "content of "+name {
			t.Errorf("%q holds %q, error %v", name, got, err)
		}
	}
	entries, err := ws.ReadDir(ctx, "a")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if want := []string{"file", "raw\xff"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the listing is %q, error %v, want %q", names, err, want)
	}
	body, _, err := b.engine.CopyFromContainer(ctx, id, "/data/a/file")
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(body).Next()
	if err != nil || header.Uid != 1000 || header.Gid != 100 {
		t.Errorf("a new file is %+v, error %v, want it to be of 1000:100", header, err)
	}
	_ = body.Close()
	if err := ws.Remove(ctx, "a"); err != nil {
		t.Errorf("remove a tree: %v", err)
	}
	if _, err := ws.Stat(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed: %v", err)
	}
	if _, err := ws.Run(ctx, workspace.Command{Args: []string{"/probe", "exit", "0"}}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "guest") {
		t.Errorf("a command: %v, want %v and what would help", err, errors.ErrUnsupported)
	}
	if declared := h.Providers()[0].Deviations; len(declared) != 2 {
		t.Errorf("declared are %q, want the two of a container without a guest", declared)
	}
}
