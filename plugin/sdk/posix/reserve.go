package posix

import (
	"context"
	"sync/atomic"
)

const (
	// helperThreads are those of a helper that run Go code. All are made at the
	// start, while they can be: a Go process that needs one more under an exhausted
	// limit of processes dies. With a single processor (GOMAXPROCS=1) there are at
	// once the loop in a system call, the wait for a child and one that runs Go code
	// or looks for some; that one may still be on its way to rest when the next is
	// called for, hence one to spare.
	helperThreads = 4
	// monitorThread is the runtime's own, in every Go process.
	monitorThread = 1
)

const (
	// reservedProcessors is how many threads of a process that called Reserve run
	// Go code at once: what it does is mostly waiting.
	reservedProcessors = 4
	// reservedCalls is how many calls of the file system such a process makes at
	// once, each of which takes a thread for as long as it lasts.
	reservedCalls = 16
	// reservedThreads is for both of these, for the wait for the keeper, the runtime's
	// own (its monitor, the wait for sockets and pipes, the making of threads, signals)
	// and for calls that end at once, but whose thread has lost its processor to a
	// busy machine.
	reservedThreads = reservedProcessors + reservedCalls + 12
)

// PIDs is how much of a limit on processes (pids.max of a control group, a
// container's pids limit) a process that called [Reserve] takes with its helpers
// while so many commands run at once, without what the commands take themselves.
// A command that has left background children counts as running. It is meant to
// be added to the limit that a user asked for: what a limit leaves is nobody's in
// particular, and a fork bomb takes that too.
func PIDs(commands int) int {
	return reservedThreads + (1+commands)*(helperThreads+monitorThread) // the keeper and the supervisors
}

// fileCalls bounds the calls of the file system that are made at once, if Reserve
// was called.
var fileCalls atomic.Pointer[chan struct{}]

// enterCall waits for its turn to call the file system. The call that it returns
// ends it.
func enterCall(ctx context.Context) (leave func(), err error) {
	calls := fileCalls.Load()
	if calls == nil {
		return func() {}, nil
	}
	select {
	case *calls <- struct{}{}:
		return func() { <-*calls }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
