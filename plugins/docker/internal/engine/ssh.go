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
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return n, err
	}
	err = &unreachableError{reason: err.Error()}
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
	// Somebody who reads may have been told already, or we are.
	timer := time.AfterFunc(sshReasonTimeout, func() { c.Close() })
	defer timer.Stop()
	_, _ = c.Read(make([]byte, 1))
	select {
	case <-c.ended:
		return n, c.cause
	case <-time.After(sshReasonTimeout):
		return n, &unreachableError{reason: err.Error()}
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
