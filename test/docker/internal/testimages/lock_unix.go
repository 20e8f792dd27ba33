//go:build unix

package testimages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that another process holds is tried again: it
// does so while it makes an image, which takes seconds.
const lockPoll = 100 * time.Millisecond

// lock takes a lock that all processes of this machine share, whoever runs
// them, and that ends with its process.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join("/tmp", name+".lock")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for %s, which another process holds: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
