//go:build docker

package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/test/collector"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// TestTraces_ReachTheEngine from a caller's own span, through host and plugin.
func TestTraces_ReachTheEngine(t *testing.T) { // not parallel: it sets variables
	c := collector.Start(t)
	for name, value := range c.Environment("grpc") {
		t.Setenv(name, value)
	}
	exporter, err := tracing.FromEnvironment(t.Context(), tracing.Service{Name: "embedder"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := exporter.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	conventional := true
	h, err := host.New(host.Config{
		PluginDirs: []string{bin}, TracerProvider: exporter.Provider(), Logger: logger(t),
		Providers: map[string]host.Provider{"traced": {
			Plugin: "docker", ConventionalEnv: &conventional,
			Config: map[string]any{"image": enginetest.Image(t, "busybox"), "network_mode": "none"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ws, err := h.Workspace("traced")
	if err != nil {
		t.Fatal(err)
	}
	ctx, root := exporter.Tracer("test").Start(t.Context(), "request")
	err = ws.WriteFile(ctx, "a", nil)
	if ref, ok := ws.Ref(); ok {
		if again, err := h.Attach(ref); err != nil {
			t.Error(err)
		} else if _, err := again.Stat(ctx, "a"); err != nil {
			t.Error(err)
		}
		if err := h.Destroy(ctx, ref); err != nil {
			t.Error(err)
		}
	}
	root.End()
	if err != nil {
		t.Fatal(err)
	}
	const host, plugin = "embedder:", pluginName + ":"
	create := []string{host + "request", host + "write traced", host + "create traced", host + "berth.v1.Provider/Create", plugin + "berth.v1.Provider/Create"}
	for _, call := range []string{"POST /containers/create", "POST /containers/{id}/start", "POST /containers/{id}/exec"} {
		c.Await(t, append(create, plugin+call)...)
	}
	c.Await(t, host+"request", host+"stat traced", host+"attach traced", host+"berth.v1.Provider/Attach", plugin+"berth.v1.Provider/Attach", plugin+"GET /containers/{id}/json")
	c.Await(t, host+"request", host+"destroy traced", host+"berth.v1.Provider/Destroy", plugin+"berth.v1.Provider/Destroy", plugin+"DELETE /containers/{id}")
}
