package engine

import (
	"net"
	"sync"

	"github.com/docker/docker/pkg/stdcopy"
)

// stderrTail is how much of the end of a connection's stderr is kept.
const stderrTail = 4 << 10

// Conn is the command's stdin and stdout as a connection. Nothing else may be
// read from the Exec then.
func (x *Exec) Conn() *Conn {
	return &Conn{Conn: x.stream.conn, exec: x}
}

// Conn is a connection through an exec. Reading may be done by one goroutine at
// a time. Deadlines work but over ssh, which has none; Close unblocks what waits
// in any case.
type Conn struct {
	net.Conn
	exec *Exec

	mu   sync.Mutex
	tail []byte
}

// Stderr is the end of what the command has written to stderr so far.
func (c *Conn) Stderr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.tail)
}

// Read reads the command's stdout.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		stream, piece, err := c.exec.frames.next(len(p))
		if err != nil {
			return 0, err
		}
		switch stream {
		case stdcopy.Stderr:
			c.keep(piece)
		case stdcopy.Systemerr:
			return 0, c.exec.frames.engineError(piece)
		default:
			return copy(p, piece), nil
		}
	}
}

func (c *Conn) keep(piece []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, piece...)
	if over := len(c.tail) - stderrTail; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
}

// CloseWrite ends the command's stdin.
func (c *Conn) CloseWrite() error { return c.exec.CloseWrite() }

// Close ends both directions.
func (c *Conn) Close() error { return c.exec.Close() }
