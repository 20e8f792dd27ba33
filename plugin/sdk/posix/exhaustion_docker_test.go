//go:build docker && linux

package posix_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// TestExhaustedContainer is of a container whose limit of processes, a user's and
// what the process that serves it takes, a bomb among its commands has used up.
func TestExhaustedContainer(t *testing.T) {
	const users, commands = 64, 20
	engine, image, name := enginetest.Client(t), enginetest.Image(t, "busybox"), enginetest.Unique(t)
	program := filepath.Join(t.TempDir(), "posix.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "github.com/berth-dev/berth/plugin/sdk/posix")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(program)
	must(t, err)
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	must(t, archive.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(binary))}))
	_, err = archive.Write(binary)
	must(t, err, archive.Close())

	for _, user := range []string{"0", "1000"} {
		t.Run("user "+user, func(t *testing.T) {
			limit, init := int64(users+posix.PIDs(commands)), true
			c, err := engine.ContainerCreate(t.Context(), &container.Config{
				Image: image, User: user, Cmd: []string{"/program"},
				Env: []string{roleEnv + "=" + roleExhausted, dirEnv + "=/tmp", roomEnv + "=0"},
			}, &container.HostConfig{
				Init: &init, NetworkMode: "none", CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
				Tmpfs: map[string]string{"/tmp": "mode=1777"}, Resources: container.Resources{PidsLimit: &limit},
			}, nil, nil, fmt.Sprint(name, "-", user))
			must(t, err)
			must(t, engine.CopyToContainer(t.Context(), c.ID, "/", bytes.NewReader(packed.Bytes()), container.CopyToContainerOptions{}))
			ended, failed := engine.ContainerWait(t.Context(), c.ID, container.WaitConditionNextExit)
			must(t, engine.ContainerStart(t.Context(), c.ID, container.StartOptions{}))
			var code int64
			select {
			case end := <-ended:
				code = end.StatusCode
			case err := <-failed:
				t.Fatal(err)
			}
			logs, err := engine.ContainerLogs(t.Context(), c.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
			must(t, err)
			defer logs.Close()
			var out bytes.Buffer
			_, err = stdcopy.StdCopy(&out, &out, logs)
			must(t, err)
			if code != 0 || !strings.HasSuffix(out.String(), "fine\n") {
				t.Errorf("exit code %d: %s", code, &out)
			}
			t.Logf("%s", &out)
		})
	}
}
