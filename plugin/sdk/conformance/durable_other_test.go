//go:build !linux

package conformance

import "testing"

const durablePlugin = "durable"

func serveDurable() {}

// durableBed is for the system on which guests run.
func durableBed(t testing.TB) Options {
	t.Helper()
	t.Skip("guests run on Linux")
	return Options{}
}
