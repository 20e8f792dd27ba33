package posix

import (
	"runtime"
	"sync"
)

// Reserve makes the threads now that this process will need to run and stop
// commands and for files, because a Go process that needs one more dies where a
// limit of processes is exhausted, as by a fork bomb among the commands that it
// runs. From then on it makes no more file system calls at once than it has threads
// for, and uses four processors at most. It also lowers its own OOM score where that
// is above normal and the kernel lets it. See [PIDs] for what it takes.
//
// It is for a process whose one purpose is to serve workspaces, and is called
// after [Main].
func Reserve() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), reservedProcessors))
	newOOMScore().close()
	calls := make(chan struct{}, reservedCalls)
	fileCalls.Store(&calls)
	MakeThreads(reservedThreads)
}

// MakeThreads makes so many threads now beside those that the runtime has made. It
// is what Reserve does, for a process that serves no workspace and must not die for
// want of a thread either.
func MakeThreads(n int) {
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
