//go:build amd64 || arm64

package posix

import "golang.org/x/sys/unix"

// caught is a signal's handler that does nothing; its address is in caughtAddr.
func caught() //nolint:unused // by its address

var caughtAddr uintptr

// catchSignals makes no signal that is sent to many end or stop this process, not
// even those that the C libraries keep for themselves and package os/signal does
// not know. They are caught, not ignored: what is ignored stays so in commands.
// Go's own way takes three threads. What says that a program is broken, and what
// the runtime needs, is left to it.
func catchSignals() {
	var action sigaction
	if !exchange(int(unix.SIGUSR1), nil, &action) { // the runtime's, with the flags that it needs
		return
	}
	action.handler = caughtAddr
	for sig := 1; sig <= lastSignal; sig++ {
		switch unix.Signal(sig) {
		case unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS,
			unix.SIGURG, unix.SIGPROF, unix.SIGCHLD, unix.SIGKILL, unix.SIGSTOP:
		default:
			exchange(sig, &action, nil)
		}
	}
}
