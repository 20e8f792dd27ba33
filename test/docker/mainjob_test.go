//go:build docker

package docker_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMainJob is what all is for, as an operator does it: each command is a process
// of its own, with a plugin of its own.
func TestMainJob(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	dir := t.TempDir()
	// JSON is YAML too.
	config, err := json.Marshal(map[string]any{
		"plugin_dirs": []string{bin},
		"providers": map[string]any{b.provider: map[string]any{
			"plugin": "docker", "conventional_env": true, "config": b.config,
		}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "berth.yaml"), config, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "input"), bytes.Repeat([]byte("some bytes\x00\xff\n"), 1000), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	berth := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "berth"), args...)
		cmd.Dir = dir
		var problems bytes.Buffer
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("berth %q: %v\n%s", args, err, problems.String())
		}
		return string(out)
	}
	if got := berth("run", b.provider, "--name", "job-"+b.provider, "--", "sh", "-c", "uname -a; id; echo kept >note"); !strings.HasPrefix(got, "Linux ") || !strings.Contains(got, "uid=0") {
		t.Errorf("the first command says %q", got)
	}
	job := b.provider + "/job-" + b.provider
	berth("cp", "input", job+":deep/er/copy")
	if got := berth("exec", job, "--", "wc", "-c", "deep/er/copy"); got != "13000 deep/er/copy\n" {
		t.Errorf("the copied file: %q", got)
	}
	b.stop(t, ref(t, b.attach(t, job)))
	if got := berth("exec", job, "--", "cat", "note"); got != "kept\n" {
		t.Errorf("after a stop the file holds %q", got)
	}
	berth("cp", job+":deep/er/copy", "output")
	in, err := os.ReadFile(filepath.Join(dir, "input"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := os.ReadFile(filepath.Join(dir, "output")); err != nil || !bytes.Equal(in, out) {
		t.Errorf("what came back is %d bytes, want the same %d (error %v)", len(out), len(in), err)
	}
	// And beside the commands, an embedder whose plugin is killed.
	ws := b.attach(t, job)
	output(t, ws, "echo more >>note")
	kill(t, b.host)
	eventually(t, "the next plugin finds the workspace", func() bool {
		data, err := ws.ReadFile(t.Context(), "note")
		return err == nil && string(data) == "kept\nmore\n"
	})
	berth("destroy", job)
	if left := b.left(t); len(left) > 0 {
		t.Errorf("destroyed, and %q is left", left)
	}
}
