package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// ErrServed is that of a socket on which another guest serves already.
var ErrServed = errors.New("another guest serves it already")

const (
	folderMode = 0o700
	socketMode = 0o600
	// othersWrite would let others remove the socket and put theirs in its place.
	// That they see it is no harm, and cannot always be helped: when a container
	// starts again, runc gives a tmpfs the mode of the folder below it, 0755,
	// whatever was asked for.
	othersWrite = 0o022
	// maxPath is the longest path that a socket can have: the kernel's own limit,
	// with the NUL that ends it.
	maxPath = 107
)

// socket is the listener. It accepts the guest's own user and root alone, and no
// more of them than can be served.
type socket struct {
	path   string
	logger hclog.Logger
	slots  chan struct{}
	// watches are of connections whose ends are waited for, and end with them.
	watches sync.WaitGroup

	mu     sync.Mutex
	lock   *os.File // held for as long as the socket is served
	bound  *net.UnixListener
	place  os.FileInfo // of the socket that is bound
	closed bool
}

// listen makes the socket, in place of one that a killed guest has left.
func listen(ctx context.Context, path string, logger hclog.Logger) (*socket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("socket %s: its path is longer than %d bytes", path, maxPath)
	}
	if err := folder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := soleLock(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	s := &socket{path: path, logger: logger, lock: lock, slots: make(chan struct{}, maxConnections)}
	if s.bound, s.place, err = bind(path); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), lock.Close())
	}
	return s, nil
}

// folder makes the socket's folder, or checks that nobody else can put another
// socket there.
func folder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), newDirMode); err != nil {
		return fmt.Errorf("making a folder for its folder: %w", err)
	}
	if err := os.Mkdir(dir, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making its folder: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("looking at its folder %s: %w", dir, err)
	}
	switch uid := os.Geteuid(); {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("its folder %s is no folder", dir)
	case int(st.Uid) != uid:
		return fmt.Errorf("its folder %s belongs to user %d, and this is user %d", dir, st.Uid, uid)
	case st.Mode&othersWrite != 0:
		return fmt.Errorf("its folder %s has mode %04o: want 0700, or others could take the socket's place", dir, st.Mode&0o7777)
	}
	return nil
}

func bind(path string) (*net.UnixListener, os.FileInfo, error) {
	if err := os.RemoveAll(path); err != nil { // whatever it is: the folder is ours
		return nil, nil, fmt.Errorf("removing a stale one: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("listening: %w", err)
	}
	err = os.Chmod(path, socketMode)
	var place os.FileInfo
	if err == nil {
		place, err = os.Lstat(path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, place, nil
}

func (s *socket) listener() (_ *net.UnixListener, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bound, s.closed
}

// close removes the socket and gives up the lock, in this order. The connections must
// have been closed.
func (s *socket) close() error {
	err := errors.Join(s.Close(), s.lock.Close())
	s.watches.Wait()
	return err
}

// Close removes the socket, if it is the one that is in its place. It may be called
// again.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.bound.SetUnlinkOnClose(isAt(s.path, s.place)) // by its path, which may be another one's
	return s.bound.Close()
}

// Addr is the socket's path.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Accept returns the next connection that is to be served.
func (s *socket) Accept() (net.Conn, error) {
	for {
		listener, _ := s.listener()
		c, err := listener.AcceptUnix()
		if err != nil {
			if current, closed := s.listener(); current != listener && !closed {
				continue // it was put back
			}
			return nil, err
		}
		uid, err := peer(c)
		switch {
		case err != nil:
			s.logger.Warn("refused a connection: its peer is not known", "error", err)
		case !welcome(uid, os.Geteuid()):
			s.logger.Warn("refused a connection of another user", "uid", uid)
		default:
			select {
			case s.slots <- struct{}{}:
				return &served{UnixConn: c, end: sync.OnceFunc(func() { <-s.slots }), watches: &s.watches}, nil
			default:
				s.logger.Warn("refused a connection: there are too many", "most", maxConnections)
			}
		}
		_ = c.Close()
	}
}

// welcome are the guest's own user, who is all commands too, and root.
func welcome(uid uint32, own int) bool { return uid == 0 || int(uid) == own }

// peer is the user who made a connection, as the kernel knows.
func peer(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// served is a connection that counts until it is closed.
type served struct {
	*net.UnixConn

	end     func()
	watches *sync.WaitGroup
}

// Close ends the connection.
func (s *served) Close() error {
	defer s.end()
	return s.UnixConn.Close()
}
