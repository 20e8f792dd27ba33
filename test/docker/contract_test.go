//go:build docker

package docker_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/shared/workspace"
)

// configuredEnv overrides a variable that every container has.
var configuredEnv = map[string]string{"HOME": "/configured", "BERTHED": "yes"}

// options are the suite's hooks for a bed.
func (b *bed) options(t *testing.T) conformance.Options {
	base := b.config["image"].(string)
	// A name of the image that can be taken away and given back. Nobody listens
	// where it would be pulled from.
	named := "127.0.0.1:9/" + b.provider + ":suite"
	tag := func(t testing.TB) {
		// Podman loses one of two names that an image is given at once.
		eventually(t, "the image has the name", func() bool {
			if err := b.engine.ImageTag(t.Context(), base, named); err != nil {
				t.Fatal(err)
			}
			_, err := b.engine.ImageInspect(t.Context(), named)
			return err == nil
		})
	}
	tag(t)
	t.Cleanup(func() { // the name alone, before what carries it is swept
		_, _ = b.engine.ImageRemove(context.WithoutCancel(t.Context()), named, image.RemoveOptions{})
	})
	b.config["image"] = named
	b.config["env"] = configuredEnv
	b.host = b.newHost(t, nil)
	recreate := func(t testing.TB, ref workspace.Ref) {
		option := workspace.WithName(ref.ID)
		if workspace.IsToken(ref.ID) {
			option = workspace.WithToken(ref.ID)
		}
		ws, err := b.newHost(t, nil).Workspace(b.provider, option)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ws.WorkingDir(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pause := false
	return conformance.Options{
		Host: b.host, Provider: b.provider, Env: configuredEnv,
		OtherHost: func(t testing.TB) workspace.Host { return b.newHost(t, nil) },
		Started:   func(h workspace.Host) bool { return h.(*host.Host).Providers()[0].State != "stopped" },
		Restart:   func(t testing.TB) { kill(t, b.host) },
		Stop: func(t testing.TB, ref workspace.Ref) {
			if pause = !pause; pause {
				b.stop(t, ref)
				return
			}
			if err := b.engine.ContainerPause(t.Context(), ref.ID); err != nil {
				t.Fatal(err)
			}
		},
		Reconfigured: func(t testing.TB) workspace.Host {
			return b.newHost(t, map[string]any{"image": base, "work_dir": "/somewhere/else", "guest": "auto"})
		},
		Replace: func(t testing.TB, ref workspace.Ref) {
			if err := b.engine.ContainerRemove(t.Context(), ref.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
				t.Fatal(err)
			}
			recreate(t, ref)
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			name := b.provider + "-elsewhere"
			if _, err := b.engine.ContainerInspect(t.Context(), name); err != nil {
				b.plain(t, name, &container.Config{Image: base}, nil)
			}
			return name, workspace.Ref{Provider: b.provider, ID: name}
		},
		Configured: func(t testing.TB) conformance.Configured {
			name := b.provider + "-configured"
			return conformance.Configured{
				Host: b.newHost(t, map[string]any{"container_name": name}), Provider: b.provider, Name: name,
			}
		},
		FailCreates: func(t testing.TB) (mend func()) {
			if _, err := b.engine.ImageRemove(t.Context(), named, image.RemoveOptions{}); err != nil {
				t.Fatal(err)
			}
			return func() { tag(t) }
		},
	}
}

// pidsLimit is for the suite's storm, of 400 Go programs, each of several threads.
const pidsLimit = 4096

// contract runs the whole suite.
func contract(t *testing.T, image string, extra map[string]any, change ...func(*conformance.Options)) {
	t.Helper()
	config := map[string]any{"pids_limit": pidsLimit}
	maps.Copy(config, extra)
	b := newBed(t, image, config)
	opts := b.options(t)
	for _, c := range change {
		c(&opts)
	}
	conformance.Test(t, opts)
}

// scratch has the probe in the image, which has nothing else.
func scratch(o *conformance.Options) { o.ProbePath = "/probe" }

// The guest as the container's init, in each image, as root and as another user.

func TestContract_Init(t *testing.T) {
	t.Parallel()
	engine := newProxy(t)
	b := newBedBehind(t, engine.address(), "debian", map[string]any{"pids_limit": pidsLimit})
	opts := b.options(t)
	opts.SlowCreates = func(t testing.TB, d time.Duration) { engine.slow(t, d) }
	conformance.Test(t, opts)
}

func TestContract_InitBusyboxAsUser(t *testing.T) {
	t.Parallel()
	contract(t, "busybox", map[string]any{"user": "agent"})
}

func TestContract_InitScratchReadOnly(t *testing.T) {
	t.Parallel()
	contract(t, "scratch", map[string]any{"read_only": true}, scratch)
}

func TestContract_InitReadOnlyAsUserWithTmpfs(t *testing.T) {
	t.Parallel()
	contract(t, "debian", map[string]any{"read_only": true, "user": "1000:1000", "tmpfs": map[string]string{"/tmp": "size=256m"}})
}

// The guest as a daemon beside the container's first process.

func TestContract_Exec(t *testing.T) {
	t.Parallel()
	contract(t, "busybox", map[string]any{"guest": "exec", "user": "1000"})
}

// Without a guest, through the engine's own calls.

// withoutGuest is the one rule that processes in a container cannot be held to from
// outside it.
var withoutGuest = []sdk.Deviation{
	{Rule: "C5_TimeoutStopsTheTree", Reason: "a descendant that left group, session and environment all at once escapes"},
}

func TestContract_WithoutGuest(t *testing.T) {
	t.Parallel()
	contract(t, "debian", map[string]any{"guest": "off"}, func(o *conformance.Options) { o.Deviations = withoutGuest })
}

func TestContract_WithoutGuestBusyboxReadOnly(t *testing.T) {
	t.Parallel()
	contract(t, "busybox", map[string]any{"guest": "off", "user": "agent", "read_only": true}, func(o *conformance.Options) { o.Deviations = withoutGuest })
}
