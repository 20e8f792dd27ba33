//go:build python

// Package python checks the provider in Python against the contract, through the
// host and a real plugin process:
//
//	go test -tags python ./examples/provider-python
//
// It needs python3 with venv and a package index, and is not part of the other
// tests for that reason.
package python

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/shared/workspace"
)

const name = "python"

func TestContract(t *testing.T) {
	bin, data := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "./build.sh", bin)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	newHost := func(t testing.TB) *host.Host {
		h, err := host.New(host.Config{
			Providers:  map[string]host.Provider{name: {}},
			PluginDirs: []string{bin},
			DataDir:    data,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		return h
	}
	h := newHost(t)
	pid := func(h *host.Host) int { return h.Providers()[0].PID }
	conformance.Test(t, conformance.Options{
		Host:      h,
		Provider:  name,
		OtherHost: func(t testing.TB) workspace.Host { return newHost(t) },
		Started:   func(h workspace.Host) bool { return pid(h.(*host.Host)) != 0 },
		Restart: func(t testing.TB) {
			running := pid(h)
			if running == 0 {
				return // nothing to kill: it is being started again
			}
			process, err := os.FindProcess(running)
			if err == nil {
				err = process.Kill()
			}
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		},
	})
}
