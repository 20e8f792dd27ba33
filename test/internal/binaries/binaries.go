// Package binaries builds the project's commands for tests that run them as
// processes of their own.
package binaries

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// EnvBin names a folder with binaries that are built already.
const EnvBin = "BERTH_TEST_BIN"

// Run is what a TestMain exits with: it builds commands, which are named as in cmd/,
// into a folder that goes again, runs the tests, and looks for goroutines that they
// left. The guest is built for this machine's processor, and berth-provider-local is
// that of examples/.
//
// The folder is told before the first test begins. It is $BERTH_TEST_BIN instead, if
// that is set, and nothing is built.
func Run(m *testing.M, folder *string, commands ...string) (status int) {
	if *folder = os.Getenv(EnvBin); *folder == "" {
		dir, err := os.MkdirTemp("", "berth-bin-")
		if err == nil {
			defer os.RemoveAll(dir)
			*folder, err = dir, build(dir, commands)
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

func build(dir string, commands []string) error {
	root, err := module()
	if err != nil {
		return err
	}
	for _, command := range commands {
		in, source, name := root, "./cmd/"+command, command
		switch command {
		case "berth-guest":
			name += "-linux-" + runtime.GOARCH
		case "berth-provider-local": // a module of its own
			in, source = filepath.Join(root, "examples", "provider-local"), "."
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, name), source)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", command, err, text)
		}
	}
	return os.Chmod(dir, 0o755) // for processes of other users
}

// module is the folder of the project: the first above a test's own with a go.mod.
func module() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the project: no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
