package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
)

// TestMain makes this binary also a plugin, under the name of one.
func TestMain(m *testing.M) {
	posix.Main()
	if filepath.Base(os.Args[0]) == wire.BinaryPrefix+folderPlugin {
		sdk.Serve(newFolderPlugin())
	}
	if filepath.Base(os.Args[0]) == wire.BinaryPrefix+durablePlugin {
		serveDurable()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(probeDir()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}
