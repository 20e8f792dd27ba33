package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// elderWait is how long a guest that begins waits for one that has lost its lock
	// to take it again: that one looks every [lookEvery], late on a busy machine, and
	// may miss it.
	elderWait = 5 * lookEvery
	// elderPoll is how often it looks meanwhile.
	elderPoll = 100 * time.Millisecond
)

func lockPath(socket string) string { return socket + ".lock" }

// soleLock is lockFile for a guest that begins. One that serves already may have lost
// its lock together with its socket: it is given the time to put both back.
func soleLock(ctx context.Context, socket string) (*os.File, error) {
	poll := time.NewTicker(elderPoll)
	defer poll.Stop()
	for end := time.Now().Add(elderWait); ; {
		elder := elderServes(socket) // before, for an elder that looks must not find the lock held by this one
		lock, err := lockFile(lockPath(socket))
		if err != nil || !elder || time.Now().After(end) {
			return lock, err
		}
		if err := lock.Close(); err != nil {
			return nil, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lockFile takes the lock that one guest holds until it ends, however it does.
func lockFile(path string) (*os.File, error) {
	for {
		lock, err := openLock(path)
		if err != nil {
			return nil, fmt.Errorf("opening its lock: %w", err)
		}
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrServed
		} else if err != nil {
			err = fmt.Errorf("taking its lock: %w", err)
		}
		if err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		if holds(path, lock) {
			return lock, nil
		}
		if err := lock.Close(); err != nil { // removed meanwhile: it locks nobody out
			return nil, err
		}
	}
}

// openLock removes what is no file: the folder is ours.
func openLock(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	lock, err := os.OpenFile(path, flags, socketMode)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		if err = os.RemoveAll(path); err == nil {
			lock, err = os.OpenFile(path, flags, socketMode)
		}
	}
	return lock, err
}

// holds reports whether an open lock is the file at path.
func holds(path string, lock *os.File) bool {
	own, err := lock.Stat()
	return err == nil && isAt(path, own)
}

// isAt reports whether that file is the one at path.
func isAt(path string, file os.FileInfo) bool {
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(there, file)
}

// elderServes looks for an older process that serves the same socket in the same
// files, so that of two one alone waits. What cannot be seen is not there.
func elderServes(socket string) bool {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	born := startOf("/proc/self")
	files, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || born == 0 {
		return false
	}
	for _, process := range processes {
		if !serves(process, socket) {
			continue
		}
		theirs, err := os.Readlink(process + "/ns/mnt")
		if began := startOf(process); err == nil && theirs == files && began > 0 && began < born {
			return true
		}
	}
	return false
}

func serves(process, socket string) bool {
	line, err := os.ReadFile(process + "/cmdline")
	if err != nil {
		return false
	}
	var args []string
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		args = append(args, string(arg))
	}
	at := slices.Index(args, "--socket")
	return len(args) > 1 && args[1] == "serve" && at > 0 && at+1 < len(args) && args[at+1] == socket
}

// startOf is when a process was started, in ticks since the machine was, or zero.
func startOf(process string) int64 {
	const field = 22 - 3 // counted from the state, which comes after the name
	stat, err := os.ReadFile(process + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= field {
		return 0
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}
