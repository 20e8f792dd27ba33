package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugin/sdk"
)

// TestMain makes the test binary the plugin where it goes by the plugin's name,
// and a worker of the crash tests where it is asked to be one.
func TestMain(m *testing.M) {
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "berth-provider-state" {
		sdk.Serve(Plugin("test"))
	}
	if job := os.Getenv(workerJob); job != "" {
		os.Exit(work(job, os.Getenv(workerStore)))
	}
	goleak.VerifyTestMain(m)
}
