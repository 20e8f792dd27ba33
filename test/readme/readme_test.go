// Package readme holds the README to its word: what it shows is run as typed.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// root is the repository, seen from this package.
const root = "../.."

// block is the fenced block of the README that begins with a line.
func block(t *testing.T, fence, first string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), fence+"\n"+first)
	if !ok {
		t.Fatalf("README.md has no block %s that begins with %q", fence, first)
	}
	text, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatalf("README.md: the block that begins with %q does not end", first)
	}
	return first + text + "\n"
}

// checkout is a folder with the built binaries in bin, as `make build` leaves them,
// and a home of its own.
func checkout(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, what := range []struct{ module, packages, output string }{
		{root, "./cmd/...", bin + string(filepath.Separator)},
		{root, "./cmd/berth-guest", filepath.Join(bin, "berth-guest-linux-"+runtime.GOARCH)},
		{filepath.Join(root, "examples", "provider-local"), ".", filepath.Join(bin, "berth-provider-local")},
	} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", what.output, what.packages)
		build.Dir, build.Env = what.module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir, append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "XDG_DATA_HOME=", "XDG_CONFIG_HOME=")
}

func TestReadme(t *testing.T) {
	dir, env := checkout(t)

	t.Run("the program for agent runtimes", func(t *testing.T) {
		source := filepath.Join(dir, "main.go")
		if err := os.WriteFile(source, []byte(block(t, "```go", "package main")), 0o600); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "program")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		run := exec.CommandContext(t.Context(), program)
		run.Dir, run.Env = dir, env
		out, err := run.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "hello from a workspace\nlocal/berth-") || !strings.HasSuffix(string(out), " hello.txt\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("the commands for operators", func(t *testing.T) {
		if err := os.CopyFS(filepath.Join(dir, "docs"), os.DirFS(filepath.Join(root, "docs"))); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), "sh", "-exc", block(t, "```", "bin/berth providers"))
		// As on a machine without an engine: what is said of the others stands.
		run.Dir, run.Env = dir, append(env, "DOCKER_HOST=unix:///nonexistent.sock")
		out, err := run.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "local/tide") || !strings.Contains(string(out), "left out: provider docker") {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("the configuration", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "berth.yaml"), []byte(block(t, "```yaml", "plugin_dirs")), 0o600); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), filepath.Join("bin", "berth"), "config", "check")
		run.Dir, run.Env = dir, env
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
