package supervisor

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/test/faults"
)

// plugins are the faulty plugins, built once.
var plugins faults.Plugins

func TestMain(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		os.Exit(hostMain(dir))
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "faults")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if plugins, err = faults.Build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		status := m.Run()
		if status == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				status = 1
			}
		}
		return status
	}())
}
