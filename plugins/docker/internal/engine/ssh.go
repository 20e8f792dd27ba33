package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types"
)

// sshReasonTimeout is how long an ssh that no longer reads may take to say why:
// it is about to end.
const sshReasonTimeout = 2 * time.Second

// sshConn is a connection through the program ssh. It sees to it that what ssh
// says when it cannot connect is told, and that its end is about the way to the
// engine. Whoever reads learns it: a write finds only a pipe that has no reader.
type sshConn struct {
	net.Conn
	closed atomic.Bool

	once  sync.Once
	ended chan struct{} // closed when cause is set
	cause error
}

func newSSHConn(conn net.Conn) *sshConn { return &sshConn{Conn: conn, ended: make(chan struct{})} }

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil || c.closed.Load():
		return n, err
	case errors.Is(err, os.ErrClosed):
		// Another reader has found the end, and waits for ssh to have ended.
		return n, c.told(err)
	case !errors.Is(err, io.EOF):
		err = &unreachableError{reason: err.Error()}
	}
	c.once.Do(func() {
		c.cause = err
		close(c.ended)
	})
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || c.closed.Load() {
		return n, err
	}
	// Perhaps nobody reads, who would be told.
	timer := time.AfterFunc(sshReasonTimeout, func() { c.Close() })
	defer timer.Stop()
	_, _ = c.Read(make([]byte, 1))
	if reason := c.told(err); !errors.Is(reason, io.EOF) {
		return n, reason
	}
	return n, &unreachableError{reason: err.Error()}
}

// told returns how ssh has ended, as a reader was told.
func (c *sshConn) told(otherwise error) error {
	select {
	case <-c.ended:
		return c.cause
	case <-time.After(sshReasonTimeout):
		return &unreachableError{reason: otherwise.Error()}
	}
}

// Close ends both directions.
func (c *sshConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// CloseWrite ends one direction.
func (c *sshConn) CloseWrite() error {
	half, ok := c.Conn.(types.CloseWriter)
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
