package runtimes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a lock that another process holds is tried again: it
// does so while it builds, which takes seconds at least.
const lockPoll = 200 * time.Millisecond

// errLocked says that another one holds the lock.
var errLocked = errors.New("locked")

// lock keeps the processes of this user and machine from building the same thing
// at once. It ends with its process. Where there is none to be had, two builds
// run, and end in one image all the same. waiting is called once if it has to
// wait.
func lock(ctx context.Context, key string, waiting func()) (unlock func(), err error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return func() {}, nil
	}
	dir = filepath.Join(dir, "berth", "builds")
	if os.MkdirAll(dir, 0o700) != nil {
		return func() {}, nil
	}
	path := filepath.Join(dir, key)
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		unlock, err := tryLock(path)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, errLocked):
			return func() {}, nil
		}
		waiting()
		waiting = func() {}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another build of it: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
