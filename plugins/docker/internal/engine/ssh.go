package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/docker/docker/api/types"
)

// sshReasonTimeout is how long an ssh that no longer reads may take to say why:
// it is about to end.
const sshReasonTimeout = 2 * time.Second

// sshConn is a connection through the program ssh. It sees to it that what ssh
// says when it cannot connect is told, and that its end is about the way to the
// engine.
type sshConn struct{ net.Conn }

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, sshError(err)
}

func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		// Only reading tells the reason. Close ends it.
		timer := time.AfterFunc(sshReasonTimeout, func() { c.Conn.Close() })
		defer timer.Stop()
		if _, reason := c.Conn.Read(make([]byte, 1)); reason != nil && !errors.Is(reason, io.EOF) {
			err = reason
		}
	}
	return n, sshError(err)
}

func sshError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return err
	}
	return &unreachableError{reason: err.Error()}
}

// CloseWrite ends one direction.
func (c *sshConn) CloseWrite() error {
	half, ok := c.Conn.(types.CloseWriter)
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
