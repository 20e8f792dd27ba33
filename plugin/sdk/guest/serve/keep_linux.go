package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lookEvery is how often the guest sees whether its socket is in its place: a
// command that cleans up too much may remove it, and nobody could come again.
const lookEvery = 2 * time.Second

// keep puts the socket and its lock back into their places, should they be gone from
// there, until ctx ends. Connections that are there are not touched.
func (s *socket) keep(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text := ""
		if err := s.putBack(); err != nil {
			text = err.Error()
		}
		if text != "" && text != told { // once, not every two seconds
			s.logger.Warn("putting the socket back into its place", "error", text)
		}
		told = text
	}
}

// putBack leaves the place to another guest that has the lock: this one was thought
// gone. Two that each take it from the other would serve by turns.
func (s *socket) putBack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || holds(lockPath(s.path), s.lock) && isAt(s.path, s.place) {
		return nil
	}
	if err := clearWay(filepath.Dir(s.path)); err != nil {
		return err
	}
	if err := folder(filepath.Dir(s.path)); err != nil {
		return err
	}
	if !holds(lockPath(s.path), s.lock) {
		lock, err := lockFile(lockPath(s.path))
		if err != nil {
			return err
		}
		old := s.lock
		s.lock = lock
		if err := old.Close(); err != nil {
			return fmt.Errorf("giving up a lock that was removed: %w", err)
		}
	}
	if isAt(s.path, s.place) {
		return nil
	}
	bound, place, err := bind(s.path)
	if err != nil {
		return err
	}
	old := s.bound
	s.bound, s.place = bound, place
	old.SetUnlinkOnClose(false) // by its path, which is the new one's
	s.logger.Warn("the socket was removed, or another put in its place: it is back")
	return old.Close() // wakes Accept
}

// clearWay removes what somebody has put into the place of the socket's folder.
func clearWay(dir string) error {
	there, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && there.IsDir() {
		return nil
	}
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil {
		return fmt.Errorf("removing what is in its folder's place: %w", err)
	}
	return nil
}
