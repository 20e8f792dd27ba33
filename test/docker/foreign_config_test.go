//go:build docker

package docker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

// What a configuration says of somebody else's container may not be so. That is told
// at once, with its key, and not taken for a container that has vanished.
func TestForeign_WhatTheConfigurationNamesIsNotThere(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	name := b.provider + "-plain"
	// Nothing can be written, so there is no guest.
	b.plain(t, name, &container.Config{Cmd: []string{"sleep", "100000"}, User: "1000"}, &container.HostConfig{ReadonlyRootfs: true})
	for key, value := range map[string]string{"work_dir": "/no-such/folder", "user": "no-such-user"} {
		h := b.newHost(t, map[string]any{"container_name": name, key: value})
		ws, err := h.Workspace(b.provider)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err = ws.WorkingDir(t.Context())
		if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "config key "+key) {
			t.Errorf("%s %s: %v, want ErrInvalid with the key", key, value, err)
		}
		if took := time.Since(begun); took > 30*time.Second { // it was tried anew for a minute
			t.Errorf("%s %s: told after %v", key, value, took)
		}
	}
}
