package supervisor

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/test/faults"
)

// plugins are the faulty plugins, built once.
var plugins faults.Plugins

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		os.Exit(hostMain(dir))
	}
	os.Exit(faults.Main(m, &plugins))
}
