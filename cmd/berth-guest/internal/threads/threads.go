// Package threads makes the threads of a small process while they can be made.
package threads

import (
	"runtime"
	"sync"
)

// Make has this process use one processor, and makes n threads for it beside those
// of the runtime. A Go process that needs one more thread where a limit of
// processes is exhausted dies.
func Make(n int) {
	runtime.GOMAXPROCS(1)
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	for range n {
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
