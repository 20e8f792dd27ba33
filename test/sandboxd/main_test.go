//go:build sandboxd

// Package sandboxd_test tests the sandboxd provider as its users have it: real plugin
// processes, a real host, and the real service over a real engine.
package sandboxd_test

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/test/internal/binaries"
)

// bin is the folder with the plugin.
var bin string

// pluginName is that of the plugin in it.
const pluginName = "berth-provider-sandboxd"

func TestMain(m *testing.M) { os.Exit(binaries.Run(m, &bin, pluginName)) }
