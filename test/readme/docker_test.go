//go:build docker

package readme

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

// defaultImage is what the docker provider takes unless it is told.
const defaultImage = "python:3.12-slim"

func TestReadmeOnAnEngine(t *testing.T) {
	engine := enginetest.Client(t)
	if _, err := engine.ImageInspect(t.Context(), defaultImage); err != nil {
		// No registry may be in reach: what it is made of does not matter here.
		if err := engine.ImageTag(t.Context(), enginetest.Image(t, "debian"), defaultImage); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("docker", "rmi", "--no-prune", defaultImage).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	dir, env := checkout(t)
	run := exec.CommandContext(t.Context(), "sh", "-exc", block(t, "```", "bin/berth run docker"))
	run.Dir, run.Env = dir, env
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nhi\n") || !strings.Contains(string(out), "uid=") {
		t.Errorf("%v\n%s", err, out)
	}
}
