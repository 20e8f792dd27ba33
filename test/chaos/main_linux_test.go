package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/test/durable"
	"github.com/berth-dev/berth/test/faults"
	"github.com/berth-dev/berth/test/internal/binaries"
)

// built holds the plugins of the project, faulty those that misbehave. The plugin
// durable is this test's own binary.
var (
	built  string
	faulty faults.Plugins
)

func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(wire.Handshake().MagicCookieKey) != "" {
		sdk.Serve(durable.Plugin())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "chaos-")
		if err == nil {
			defer os.RemoveAll(dir)
			faulty, err = faults.Build(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return binaries.Run(m, &built, "berth-provider-state", "berth-provider-local")
	}())
}

// binaryOf is the file of a plugin.
func binaryOf(plugin string) string {
	switch plugin {
	case durable.Name:
		return "/proc/self/exe"
	case faults.Good:
		return faulty.Path(plugin)
	}
	return filepath.Join(built, wire.BinaryPrefix+plugin)
}
