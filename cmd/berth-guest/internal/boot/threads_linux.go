package boot

import (
	"runtime"
	"sync"
)

// spareThreads are for the calls of the kernel that this process makes: one
// that starts a process, one that reads /proc, and one that runs Go code
// meanwhile.
const spareThreads = 3

// makeThreads makes all threads now that this process will need: a Go process
// that needs one more where a limit of processes is exhausted dies, and with this
// one the workspace.
func makeThreads() {
	runtime.GOMAXPROCS(1)
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	for range spareThreads {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // so that none does for two
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
