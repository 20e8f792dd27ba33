//go:build !unix

package sdk

import (
	"fmt"
	"os"
	"runtime"

	"github.com/berth-dev/berth/shared/wire"
)

// holdLifeline: descriptors are not inherited by number here.
func holdLifeline(func()) error {
	if _, ok := os.LookupEnv(wire.LifelineEnv); ok {
		return fmt.Errorf("%s is not supported on %s", wire.LifelineEnv, runtime.GOOS)
	}
	return nil
}

// claimStdout leaves the descriptor as it is: only what is printed by os.Stdout
// is kept out of the host's way, from the first call on.
func claimStdout() error { return nil }
