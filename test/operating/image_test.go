//go:build docker

package operating_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

// stopGrace is what docs/operating.md tells to give: longer than draining takes.
const stopGrace = 60 * time.Second

// The image serves as the docs have it run: another user than root, on a root that is
// read-only, with no privilege; and a session outlives its container.
func TestImage(t *testing.T) {
	engine := enginetest.Client(t)
	name := enginetest.Unique(t)
	tag := name + ":test"
	buildImage(t, engine, tag)
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(token+"\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(secret), 0o755); err != nil {
		t.Fatal(err)
	}
	b := start(t, engine, name, &container.Config{Image: tag}, &container.HostConfig{
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		Tmpfs: map[string]string{"/run/berth": "mode=0700,uid=65532,gid=65532"},
		Mounts: []mount.Mount{
			{Type: mount.TypeVolume, Source: name, Target: "/var/lib/berth"},
			{Type: mount.TypeBind, Source: secret, Target: "/run/secrets/berth-token", ReadOnly: true},
		},
		PortBindings: nat.PortMap{"8787/tcp": {{HostIP: "127.0.0.1"}}},
	})
	healthy := func() {
		t.Helper()
		until(t, "the container to be healthy", func() bool {
			info := b.inspect()
			if !info.State.Running {
				t.Fatalf("it ended: %+v", info.State)
			}
			return info.State.Health.Status == container.Healthy
		})
	}
	healthy()
	must := func(want int, method, path, body, contains string) {
		t.Helper()
		status, answer, err := ask(t, method, b.address()+path, body)
		if err != nil || status != want || !strings.Contains(answer, contains) {
			t.Fatalf("%s %s: %d %s, %v; want %d with %s", method, path, status, answer, err, want, contains)
		}
	}
	must(http.StatusOK, http.MethodGet, "/healthz", "", `"status":"ok"`)
	must(http.StatusOK, http.MethodPost, "/sessions", `{"session_id":"s"}`, `"runtime":"notes"`)
	must(http.StatusNoContent, http.MethodPut, "/sessions/s/files/content?path=note", "kept", "")

	top, err := engine.ContainerTop(t.Context(), b.id, []string{"-eo", "pid,uid,args"})
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Processes) < 2 { // berth, and the plugin that the session has started
		t.Errorf("processes: %q", top.Processes)
	}
	for _, process := range top.Processes {
		if process[1] != "65532" {
			t.Errorf("%q does not run as uid 65532", process)
		}
	}
	if output, code := b.exec("/bin/sh", "-c", "true"); code == 0 {
		t.Errorf("the image has a shell: %s", output)
	}
	if output, code := b.exec("/usr/bin/berth", "-c", "/etc/berth/berth.yaml", "reload", "notes"); code != 0 || !strings.Contains(output, "swapped") {
		t.Errorf("reload: %d, %s", code, output)
	}
	if code := b.stop(stopGrace); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	b.start()
	healthy()
	must(http.StatusOK, http.MethodGet, "/sessions/s/files/content?path=note", "", "kept")
	if code := b.stop(stopGrace); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
