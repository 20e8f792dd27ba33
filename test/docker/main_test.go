//go:build docker

// Package docker_test tests the docker provider as its users have it: real plugin
// processes, a real host and a real engine.
package docker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// bin is the folder with berth, the plugin and its guests, as `make build` leaves it.
var bin string

// pluginName is that of the plugin in it.
const pluginName = "berth-provider-docker"

// envBin names a folder with binaries that are built already.
const envBin = "BERTH_TEST_BIN"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	if bin = os.Getenv(envBin); bin == "" {
		dir, err := os.MkdirTemp("", "berth-docker")
		if err == nil {
			defer os.RemoveAll(dir)
			bin, err = dir, build(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	status = m.Run()
	if err := goleak.Find(); status == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// build makes berth, the plugin, and the guest for this machine's processor.
func build(dir string) error {
	for name, source := range map[string]string{
		"berth":                               "cmd/berth",
		pluginName:                            "cmd/berth-provider-docker",
		"berth-guest-linux-" + runtime.GOARCH: "cmd/berth-guest",
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "./"+source)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", source, err, text)
		}
	}
	return nil
}
