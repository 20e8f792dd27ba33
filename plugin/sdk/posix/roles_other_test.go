//go:build !linux

package posix_test

import "github.com/berth-dev/berth/plugin/sdk/posix"

// playRole is for tests of process trees, which only Linux has.
func playRole() { posix.Main() }
