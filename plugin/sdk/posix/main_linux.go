package posix

import (
	"errors"
	"os"
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
		supervisors.groups = commandGroups()
		return
	}
	unix.CloseOnExec(socketFD)
	status := 2
	if socket, err := newPort(socketFD); err == nil {
		switch os.Args[1] {
		case supervisorRole:
			status = supervise(socket)
		case keeperRole:
			status = keep(socket)
		}
	}
	os.Exit(status)
}

// makeThreads makes this process have n threads that run Go code, beside those of
// the runtime, and it keeps them. It does without locking goroutines to threads:
// that would cost one more.
func makeThreads(n int) error {
	have, err := goThreads()
	if err != nil || have >= n {
		return err
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return err
	}
	var blocked sync.WaitGroup
	for range n - 2 { // beside this one, and the one that looks for work while this waits
		blocked.Go(func() {
			var end [1]byte
			for {
				if _, err := unix.Read(fds[readEnd], end[:]); !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
	}
	for err == nil && have < n {
		_, _ = unix.Ppoll(nil, &unix.Timespec{Nsec: 300_000}, nil) // long enough for the monitor to see it
		have, err = goThreads()
	}
	err = errors.Join(err, unix.Close(fds[writeEnd]))
	blocked.Wait()
	return errors.Join(err, unix.Close(fds[readEnd]))
}

// goThreads is how many this process has.
func goThreads() (int, error) {
	var task unix.Stat_t
	err := unix.Stat("/proc/self/task", &task)
	const dots = 2 // the entries "." and ".."
	return int(task.Nlink) - dots - runtimeThreads, err
}
