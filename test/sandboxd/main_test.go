//go:build sandboxd

// Package sandboxd_test tests the sandboxd provider as its users have it: real plugin
// processes, a real host, and the real service over a real engine.
package sandboxd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// bin is the folder with the plugin.
var bin string

const pluginName = "berth-provider-sandboxd"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (status int) {
	dir, err := os.MkdirTemp("", "berth-sandboxd")
	if err == nil {
		defer os.RemoveAll(dir)
		bin, err = dir, build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status = m.Run()
	if err := goleak.Find(); status == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func build(dir string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, pluginName), "./cmd/"+pluginName)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pluginName, err, text)
	}
	return nil
}
