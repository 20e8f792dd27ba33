package posix

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is this process's end of the socket to a helper. It carries messages and
// descriptors.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	mu   sync.Mutex // one message at a time
}

// newConn takes over a socket, which it makes non-blocking so that waiting for
// it costs no thread and ends when it is closed.
func newConn(fd int) (*conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "supervisor socket")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &conn{file: file, raw: raw}, nil
}

// socketPair returns our end and the other process's.
func socketPair() (*conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, err := newConn(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "supervisor socket")
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

func (c *conn) close() error { return c.file.Close() }

// alive reports whether the other side has not hung up, as far as is known now.
func (c *conn) alive() bool {
	alive := false
	_ = c.raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor
		_, err := pollNow(poll)
		alive = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) == 0
	})
	return alive
}

func (c *conn) send(m message) error {
	buf, err := encode(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(m.fds) > 0 {
		rights = unix.UnixRights(m.fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(buf) > 0 {
		var n int
		var err error
		waitErr := c.raw.Write(func(fd uintptr) bool {
			n, err = sendSome(int(fd), buf, rights)
			return !retry(err)
		})
		if err = errors.Join(waitErr, err); err != nil {
			return err
		}
		buf, rights = buf[n:], nil
	}
	return nil
}

// receive returns the next message; io.EOF when the other side has hung up.
func (c *conn) receive() (m message, err error) {
	var fds []int
	defer func() {
		if m.fds = fds; err != nil {
			closeAll(fds)
			m = message{}
		}
	}()
	var head [headSize]byte
	if err := c.readFull(head[:], &fds); err != nil {
		return m, err
	}
	size, err := bodySize(head[:])
	if err != nil {
		return m, err
	}
	body := make([]byte, size)
	if err := c.readFull(body, &fds); err != nil {
		return m, err
	}
	return decode(body)
}

// readFull reads just p, so that descriptors stay with their message.
func (c *conn) readFull(p []byte, fds *[]int) error {
	for len(p) > 0 {
		var n int
		var err error
		waitErr := c.raw.Read(func(fd uintptr) bool {
			n, err = receiveSome(int(fd), p, fds)
			return !retry(err)
		})
		switch {
		case errors.Is(err, io.EOF): // as it is: callers compare
			return io.EOF
		case errors.Join(waitErr, err) != nil:
			return errors.Join(waitErr, err)
		}
		p = p[n:]
	}
	return nil
}
