package posix

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Names of the helpers' argument lists. They tell this binary, started again,
// what it is, and people who look at a listing of processes.
const (
	helperName     = "berth-supervisor"
	supervisorRole = "supervise"
	keeperRole     = "keep"
)

// socketFD is a helper's one descriptor beside the null device.
const socketFD = 3

// mainCalled tells whether helpers of this binary would know what they are.
var mainCalled atomic.Bool

// Main turns this process into a helper if it was started as one, and never
// returns then. It must be the first line of main, and of TestMain in tests that
// run commands: without it each helper would run the whole program again, so
// that commands are refused where it was not called.
func Main() {
	if len(os.Args) != 2 || os.Args[0] != helperName {
		mainCalled.Store(true)
		return
	}
	runtime.LockOSThread() // attributes of a thread are inherited from this one
	unix.CloseOnExec(socketFD)
	detach()
	c, err := newConn(socketFD)
	if err != nil {
		os.Exit(2)
	}
	switch os.Args[1] {
	case supervisorRole:
		resetAttributes()
		makeThreads()
		os.Exit(supervise(c))
	case keeperRole:
		makeThreads()
		os.Exit(keep(c))
	}
	os.Exit(2)
}

// spareThreads is how many threads a helper has ready for its blocking calls.
const spareThreads = 3

// makeThreads makes the threads that this process will need while it can: a Go
// process that needs one more under an exhausted limit of processes dies.
func makeThreads() {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
