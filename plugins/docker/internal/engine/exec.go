package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
)

// ExecOptions say what to execute in a running container.
type ExecOptions struct {
	// Cmd is the argv, looked up by the engine. It travels as JSON, which
	// replaces bytes that are not UTF-8.
	Cmd []string
	// Env is added to the container's own, as NAME=VALUE. An inspection of the
	// exec shows it.
	Env []string
	// Dir is the container's working directory if empty.
	Dir string
	// User is the container's own if empty.
	User string
	// Stdin says that there is an input.
	Stdin bool
}

// Exec is a command under way in a container.
type Exec struct {
	engine *Engine
	id     string
	conn   types.HijackedResponse
	closed sync.Once
}

// Exec starts a command in a container. The context is for the start alone. It
// has to be closed.
func (e *Engine) Exec(ctx context.Context, containerID string, opts ExecOptions) (*Exec, error) {
	x := &Exec{engine: e}
	err := e.Change(ctx, "executing a command in container "+containerID, func(ctx context.Context, c *client.Client) error {
		created, err := c.ContainerExecCreate(ctx, containerID, container.ExecOptions{
			Cmd: opts.Cmd, Env: opts.Env, WorkingDir: opts.Dir, User: opts.User,
			AttachStdin: opts.Stdin, AttachStdout: true, AttachStderr: true,
		})
		if err != nil {
			return err
		}
		x.id = created.ID
		x.conn, err = c.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// ID is the engine's name of it.
func (x *Exec) ID() string { return x.id }

// Write writes to the command's stdin.
func (x *Exec) Write(p []byte) (int, error) { return x.conn.Conn.Write(p) }

// CloseWrite ends the command's stdin.
func (x *Exec) CloseWrite() error { return x.conn.CloseWrite() }

// Copy copies the outputs until they end: at the command's end, or some seconds
// later where a background child holds them open. A writer that blocks stops
// both.
func (x *Exec) Copy(stdout, stderr io.Writer) error {
	if _, err := stdcopy.StdCopy(stdout, stderr, x.conn.Reader); err != nil {
		return fmt.Errorf("reading the output of an exec: %w", err)
	}
	return nil
}

// ErrRunning says that the command has not ended.
var ErrRunning = errors.New("the engine says that the command is still running")

// ExitCode asks for the exit code of a command that has ended; [ErrRunning] of
// one that has not, so far as the engine knows.
func (x *Exec) ExitCode(ctx context.Context) (int, error) {
	var inspect container.ExecInspect
	err := x.engine.Query(ctx, "asking for an exit code", func(ctx context.Context, c *client.Client) (err error) {
		inspect, err = c.ContainerExecInspect(ctx, x.id)
		return err
	})
	if err != nil {
		return 0, err
	}
	if inspect.Running {
		return 0, ErrRunning
	}
	return inspect.ExitCode, nil
}

// Close gives up the streams. The command goes on: the engine cannot end it.
func (x *Exec) Close() error {
	x.closed.Do(x.conn.Close)
	return nil
}

// stderrTail is how much of the end of a connection's stderr is kept.
const stderrTail = 4 << 10

// Conn is the command's stdin and stdout as a connection. Nothing else may be
// read from the Exec then.
func (x *Exec) Conn() *Conn {
	return &Conn{Conn: x.conn.Conn, exec: x, frames: x.conn.Reader}
}

// Conn is a connection through an exec. Reading may be done by one goroutine at
// a time.
type Conn struct {
	net.Conn
	exec   *Exec
	frames *bufio.Reader
	left   int  // of the current frame
	errors bool // it is of stderr

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
		if c.left == 0 {
			if err := c.nextFrame(); err != nil {
				return 0, err
			}
			continue
		}
		if !c.errors {
			n, err := c.frames.Read(p[:min(len(p), c.left)])
			c.left -= n
			return n, err
		}
		if err := c.keepStderr(); err != nil {
			return 0, err
		}
	}
}

// nextFrame reads a frame's header: the stream's number, three zeros, and the
// length in four bytes.
func (c *Conn) nextFrame() error {
	const headerSize, lengthAt = 8, 4
	header, err := c.frames.Peek(headerSize)
	if err != nil {
		if errors.Is(err, io.EOF) && len(header) > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	switch stdcopy.StdType(header[0]) {
	case stdcopy.Stdout:
		c.errors = false
	case stdcopy.Stderr, stdcopy.Systemerr:
		c.errors = true
	default:
		return fmt.Errorf("exec stream: a frame of the unknown stream %d", header[0])
	}
	for _, b := range header[lengthAt:] {
		c.left = c.left<<8 | int(b)
	}
	_, err = c.frames.Discard(headerSize)
	return err
}

func (c *Conn) keepStderr() error {
	chunk := make([]byte, min(c.left, stderrTail))
	n, err := io.ReadFull(c.frames, chunk)
	c.left -= n
	c.mu.Lock()
	c.tail = append(c.tail, chunk[:n]...)
	c.tail = c.tail[max(len(c.tail)-stderrTail, 0):]
	c.mu.Unlock()
	return err
}

// CloseWrite ends the command's stdin.
func (c *Conn) CloseWrite() error { return c.exec.CloseWrite() }

// Close ends both directions.
func (c *Conn) Close() error { return c.exec.Close() }
