package sdk

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// beNice gives this process a lower priority, unless it could not give commands
// back the one that it had: whoever has lowered one may not always raise it.
func beNice(niceness int) error {
	if !mayUndo() {
		return nil
	}
	// The group is this process with all its threads, and what it has started.
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, niceness); err != nil {
		return fmt.Errorf("taking niceness %d: %w", niceness, err)
	}
	return nil
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
