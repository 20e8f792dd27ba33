//go:build gateway

// Package gateway_test tests `berth serve` as its users have it: real processes and
// plugins, the clients that exist already, and the stores that it may have.
package gateway_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// bin is the folder with berth, the plugins and the guest.
var bin string

// envBin names a folder with binaries that are built already.
const envBin = "BERTH_TEST_BIN"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (status int) {
	if bin = os.Getenv(envBin); bin == "" {
		dir, err := os.MkdirTemp("", "berth-gateway")
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

// build makes berth, its plugins, and the guest for this machine's processor.
func build(dir string) error {
	root := filepath.Join("..", "..")
	for _, b := range []struct{ in, name, source string }{
		{root, "berth", "./cmd/berth"},
		{root, "berth-provider-docker", "./cmd/berth-provider-docker"},
		{root, "berth-provider-sandboxd", "./cmd/berth-provider-sandboxd"},
		{root, "berth-provider-state", "./cmd/berth-provider-state"},
		{root, "berth-guest-linux-" + runtime.GOARCH, "./cmd/berth-guest"},
		{filepath.Join(root, "examples", "provider-local"), "berth-provider-local", "."},
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, b.name), b.source)
		cmd.Dir = b.in
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.name, err, text)
		}
	}
	return os.Chmod(dir, 0o755) // for berth as another user
}
