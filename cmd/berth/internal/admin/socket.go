package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// socketMode lets the serve's user in, and nobody else.
	socketMode = 0o600
	// folderMode is that of the folder of a socket: others cannot enter it, whatever
	// the system thinks of a socket's own mode.
	folderMode = 0o700
)

// Socket is an admin socket that this process has opened, and holds until Close.
type Socket struct {
	net.Listener
	path  string
	named bool
	lock  *lock
	close func() error
}

// Path is where it stands.
func (s *Socket) Path() string { return s.path }

// Close takes the socket away, and lets go of its place. A second one does nothing.
func (s *Socket) Close() error { return s.close() }

// end is for once: the place may be another serve's afterwards.
func (s *Socket) end() error {
	err := s.Listener.Close() // which removes it
	s.lock.release()
	if !s.named {
		_ = os.Remove(filepath.Dir(s.path)) // our own folder, if no other socket stands there
	}
	return err
}

// Listen opens the socket at the first of the place's paths that it can. What a
// serve that was killed left there is taken away: its lock tells that it is gone. A
// [*HeldError] says that another serve of the same configuration has it.
func Listen(ctx context.Context, place Place) (*Socket, error) {
	if len(place.Paths) == 0 {
		return nil, errNoSocket
	}
	var errs []error
	for _, path := range place.Paths {
		s, err := listen(ctx, path, place.Named)
		var held *HeldError
		if err == nil || errors.As(err, &held) || ctx.Err() != nil {
			return s, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func listen(ctx context.Context, path string, named bool) (_ *Socket, err error) {
	fail := func(err error) (*Socket, error) { return nil, fmt.Errorf("admin socket %s: %w", path, err) }
	dir := filepath.Dir(path)
	if err := makeFolder(dir); err != nil {
		return fail(err)
	}
	held, err := takeLock(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			held.release()
		}
	}()
	// The lock is ours: whoever made the socket that stands there is gone.
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode()&os.ModeSocket == 0:
		return fail(errors.New("something stands there that is no socket: move it away, or name another path"))
	case err == nil:
		if err := os.Remove(path); err != nil {
			return fail(fmt.Errorf("removing what a serve that has ended left: %w", err))
		}
	case !errors.Is(err, os.ErrNotExist):
		return fail(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return fail(err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		l.Close()
		return fail(fmt.Errorf("closing it to others: %w", err))
	}
	s := &Socket{Listener: l, path: path, named: named, lock: held}
	s.close = sync.OnceValue(s.end)
	return s, nil
}

const (
	// lockPatience is for how long a lock is asked for again: a command that looks
	// whether anyone has it holds it for a moment.
	lockPatience = time.Second
	lockPoll     = 20 * time.Millisecond
)

// lockFile is beside the socket. Its holder is the serve that listens there.
func lockFile(path string) string { return path + ".lock" }
