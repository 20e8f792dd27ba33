//go:build docker

// Package operating_test checks what docs/operating.md gives to operators: the systemd
// unit, and the recipe of the container image.
package operating_test

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/test/internal/binaries"
)

// bin is the folder with what the image holds.
var bin string

func TestMain(m *testing.M) {
	os.Exit(binaries.Run(m, &bin, "berth", "berth-guest", "berth-provider-docker", "berth-provider-sandboxd", "berth-provider-state"))
}

// docs is where the files are that are checked.
const docs = "../../docs/operating/"
