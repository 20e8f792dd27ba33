//go:build gateway

// Package gateway_test tests `berth serve` as its users have it: real processes and
// plugins, the clients that exist already, and the stores that it may have.
package gateway_test

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/test/internal/binaries"
)

// bin is the folder with berth, the plugins and the guest.
var bin string

func TestMain(m *testing.M) {
	os.Exit(binaries.Run(m, &bin, "berth", "berth-guest", "berth-provider-docker", "berth-provider-local", "berth-provider-sandboxd", "berth-provider-state"))
}
