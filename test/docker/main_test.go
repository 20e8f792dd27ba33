//go:build docker

// Package docker_test tests the docker provider as its users have it: real plugin
// processes, a real host and a real engine.
package docker_test

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/test/internal/binaries"
)

// bin is the folder with berth, the plugin and its guest.
var bin string

// pluginName is that of the plugin in it.
const pluginName = "berth-provider-docker"

func TestMain(m *testing.M) { os.Exit(binaries.Run(m, &bin, "berth", "berth-guest", pluginName)) }
