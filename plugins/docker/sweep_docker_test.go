//go:build docker

package docker

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// A sweep that spares nothing for its youth needs an engine of its own: on a
// shared one it would take what others are making.
func TestSweep_RemovesWhatNothingUses(t *testing.T) {
	own := enginetest.Own(t)
	t.Setenv("DOCKER_HOST", own.Host())
	made, err := Plugin("test").New(t.Context(), Config{}, sdk.Env{Provider: "mine", DataDir: t.TempDir(), Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*provider)
	t.Cleanup(func() { _ = p.Close() })
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	managed := func(key, value string) map[string]string {
		return map[string]string{workspace.LabelManaged: "true", key: value}
	}
	for name, labels := range map[string]map[string]string{
		"work":   managed(workspace.LabelProvider, "mine"),
		"theirs": managed(workspace.LabelProvider, "theirs"),
		"guest":  managed(guestvolume.LabelGuest, "00"),
		"used":   managed(workspace.LabelProvider, "mine"),
		"plain":  nil,
	} {
		if _, err := api.VolumeCreate(t.Context(), volume.CreateOptions{Name: name, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	use(t, api, "used")
	volumes := func() (names []string) {
		list, err := api.VolumeList(t.Context(), volume.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list.Volumes {
			names = append(names, v.Name)
		}
		slices.Sort(names)
		return names
	}
	want := []workspace.Leftover{{Kind: "volume", Name: "guest"}, {Kind: "volume", Name: "work"}}
	for _, step := range []struct {
		name string
		s    sweeping
		want []workspace.Leftover
		left []string
	}{
		{"a dry run", sweeping{provider: p, dryRun: true}, want, []string{"guest", "plain", "theirs", "used", "work"}},
		{"one that spares the young", sweeping{provider: p, unused: sweepGrace}, nil, []string{"guest", "plain", "theirs", "used", "work"}},
		{"a real one", sweeping{provider: p}, want, []string{"plain", "theirs", "used"}},
		{"another one", sweeping{provider: p}, nil, []string{"plain", "theirs", "used"}},
	} {
		swept, err := step.s.all(t.Context())
		slices.SortFunc(swept, func(a, b workspace.Leftover) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
		if left := volumes(); err != nil || !slices.Equal(swept, step.want) || !slices.Equal(left, step.left) {
			t.Errorf("%s: swept %v, %v; left %v", step.name, swept, err, left)
		}
	}
}

// use makes a container that has a volume.
func use(t *testing.T, api *client.Client, name string) {
	t.Helper()
	empty := image.ImportSource{Source: bytes.NewReader(make([]byte, 1024)), SourceName: "-"} // the end of a tar archive
	told, err := api.ImageImport(t.Context(), empty, "empty", image.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, told); err != nil {
		t.Fatal(err)
	}
	told.Close()
	host := &container.HostConfig{Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: "/v"}}}
	if _, err := api.ContainerCreate(t.Context(), &container.Config{Image: "empty", Cmd: []string{"none"}}, host, nil, nil, ""); err != nil {
		t.Fatal(err)
	}
}
