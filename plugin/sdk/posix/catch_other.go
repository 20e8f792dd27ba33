//go:build linux && !amd64 && !arm64

package posix

import (
	"os"
	"os/signal"
)

// catchSignals makes no signal that is sent to many end or stop this process,
// but those that package os/signal does not know. They are caught, not ignored:
// what is ignored stays so in commands.
func catchSignals() { signal.Notify(make(chan os.Signal, 1)) }
