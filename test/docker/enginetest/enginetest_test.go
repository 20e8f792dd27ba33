//go:build docker

package enginetest_test

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestImagesRun(t *testing.T) {
	engine := enginetest.Client(t)
	for _, test := range []struct {
		image   string
		command []string
		user    string
	}{
		{"busybox", []string{"sh", "-c", `test "$(id -u)" = 1000 && test -w /tmp && test -w ~`}, "agent"},
		{"debian", []string{"sh", "-c", `test "$(id -u)" = 1000 && test -w /tmp && test -w ~ && python3 -c 'print(1)' && ps`}, "agent"},
		{"scratch", []string{"/probe", "exit", "0"}, ""},
	} {
		t.Run(test.image, func(t *testing.T) {
			name := enginetest.Unique(t)
			made, err := engine.ContainerCreate(t.Context(), &container.Config{
				Image: enginetest.Image(t, test.image), Cmd: test.command, User: test.user,
			}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			ended, failed := engine.ContainerWait(t.Context(), made.ID, container.WaitConditionNotRunning)
			select {
			case err := <-failed:
				t.Fatal(err)
			case end := <-ended:
				if end.StatusCode != 0 {
					t.Errorf("%q in %s: exit code %d, want 0", test.command, test.image, end.StatusCode)
				}
			}
		})
	}
}

func TestUniqueRemovesWhatCarriesIt(t *testing.T) {
	engine := enginetest.Client(t)
	var byName, byLabel, labelled, net, tag, alias string
	t.Run("make", func(t *testing.T) {
		ctx := t.Context()
		name := enginetest.Unique(t)
		bb := enginetest.Image(t, "busybox")
		config := &container.Config{Image: bb, Cmd: []string{"sleep", "1000"}}
		one, err := engine.ContainerCreate(ctx, config, nil, nil, nil, name+"-one")
		if err != nil {
			t.Fatal(err)
		}
		byName = one.ID
		if err := engine.ContainerStart(ctx, byName, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		vol, err := engine.VolumeCreate(ctx, volume.CreateOptions{Labels: map[string]string{"dev.berth.provider": name}})
		if err != nil {
			t.Fatal(err)
		}
		labelled = vol.Name
		config.Labels = map[string]string{"dev.berth.provider": name}
		two, err := engine.ContainerCreate(ctx, config, &container.HostConfig{Binds: []string{labelled + ":/v"}}, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		byLabel = two.ID
		made, err := engine.NetworkCreate(ctx, name, network.CreateOptions{Internal: true})
		if err != nil {
			t.Fatal(err)
		}
		net = made.ID
		alias = name + "/alias:latest"
		if err := engine.ImageTag(ctx, bb, alias); err != nil {
			t.Fatal(err)
		}
		tag = name + "/image:latest"
		commit, err := engine.ContainerCommit(ctx, byName, container.CommitOptions{Reference: tag, Config: config})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.ImageInspect(ctx, commit.ID); err != nil {
			t.Fatal(err)
		}
	})
	ctx := t.Context()
	for what, look := range map[string]func() error{
		"the container of that name": func() error { _, err := engine.ContainerInspect(ctx, byName); return err },
		"the labelled container":     func() error { _, err := engine.ContainerInspect(ctx, byLabel); return err },
		"the labelled volume":        func() error { _, err := engine.VolumeInspect(ctx, labelled); return err },
		"the network":                func() error { _, err := engine.NetworkInspect(ctx, net, network.InspectOptions{}); return err },
		"the name of another image":  func() error { _, err := engine.ImageInspect(ctx, alias); return err },
		"the image":                  func() error { _, err := engine.ImageInspect(ctx, tag); return err },
	} {
		if err := look(); !errdefs.IsNotFound(err) {
			t.Errorf("%s is still there: %v", what, err)
		}
	}
	// The image that all tests share has no part in it.
	if _, err := engine.ImageInspect(ctx, "berth-test/busybox:latest"); err != nil {
		t.Errorf("the image that was used: %v", err)
	}
}
