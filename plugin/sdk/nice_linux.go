package sdk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// beNice gives this process a lower priority, unless it could not give commands
// back the one that it had: whoever has lowered one may not always raise it.
func beNice(niceness int) error {
	if !mayUndo() {
		return nil
	}
	// Each thread has its own, and gives it to those that it makes: until there is none
	// that was not seen yet.
	for seen := map[int]bool{}; ; {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("taking niceness %d: %w", niceness, err)
		}
		before := len(seen)
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || seen[id] {
				continue
			}
			seen[id] = true
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, niceness); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("taking niceness %d: %w", niceness, err)
			}
		}
		if len(seen) == before {
			return nil
		}
	}
}

// mayUndo tries it, on a thread that ends with that.
func mayUndo() bool {
	undone := make(chan bool)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		const offset = 20      // the system call's answer is 20 less the niceness
		now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, offset-now+1)
		}
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, offset-now)
		}
		undone <- err == nil
	}()
	return <-undone
}
