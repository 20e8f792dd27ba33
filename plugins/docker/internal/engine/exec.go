package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/shared/workspace"
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
	stream *hijacked
	frames frames
	closed sync.Once
}

// Exec starts a command in a container. The context is for the start alone. It
// has to be closed. When it fails, the command has either not started or finds
// its streams closed.
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
		x.stream, err = e.hijack(ctx, c, "/exec/"+url.PathEscape(x.id)+"/start", container.ExecAttachOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	x.frames.r = x.stream.reader
	return x, nil
}

// ID is the engine's name of it.
func (x *Exec) ID() string { return x.id }

// Write writes to the command's stdin.
func (x *Exec) Write(p []byte) (int, error) { return x.stream.conn.Write(p) }

// CloseWrite ends the command's stdin.
func (x *Exec) CloseWrite() error { return x.stream.closeWrite() }

// Copy copies the outputs until they end: at the command's end, or some seconds
// later where a background child holds them open. A writer that blocks stops
// both, and memory is bounded. That the outputs have ended does not say that the
// command has: an engine that dies ends them too. A writer's error is returned
// as it is; what breaks the stream is [workspace.ErrTransient].
func (x *Exec) Copy(stdout, stderr io.Writer) error {
	const doing = "reading the output of an exec"
	for {
		stream, piece, err := x.frames.next(frameBuffer)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %s: %w", doing, err.Error(), workspace.ErrTransient)
		}
		to := stdout
		switch stream {
		case stdcopy.Stderr:
			to = stderr
		case stdcopy.Systemerr:
			return fmt.Errorf("%s: %w: %w", doing, x.frames.engineError(piece), workspace.ErrTransient)
		}
		if n, err := to.Write(piece); err != nil {
			return err
		} else if n != len(piece) {
			return io.ErrShortWrite
		}
	}
}

var (
	// ErrRunning says that the command has not ended.
	ErrRunning = errors.New("the engine says that the command is still running")
	// ErrExitUnknown says that the command is no longer running and that its exit
	// code cannot be known.
	ErrExitUnknown = errors.New("the engine does not tell the command's exit code")
)

// ExitCode asks for the exit code of a command that has ended; [ErrRunning] of
// one that has not, so far as the engine knows. An exit code that it does not
// tell yet is never 0: that is ErrRunning too.
func (x *Exec) ExitCode(ctx context.Context) (int, error) {
	state, err := x.inspect(ctx)
	switch {
	case err != nil:
		return 0, err
	case state.Running || state.ExitCode == nil:
		return 0, ErrRunning
	}
	return *state.ExitCode, nil
}

const (
	// exitUnknownAfter is how long a command that is not running may be without
	// an exit code before it is unknown: the engine records both within
	// milliseconds of each other.
	exitUnknownAfter = 5 * time.Second
	// firstExitPause and longestExitPause lie between two questions for an exit
	// code: an engine answers in less than a millisecond, and a command that
	// closed its outputs early may run for hours.
	firstExitPause   = 2 * time.Millisecond
	longestExitPause = 250 * time.Millisecond
)

// Wait waits until the command has ended and returns its exit code. It asks
// again and again, so it is for when the outputs have ended.
func (x *Exec) Wait(ctx context.Context) (int, error) {
	var unknownSince time.Time
	for pause := firstExitPause; ; pause = min(2*pause, longestExitPause) {
		state, err := x.inspect(ctx)
		switch {
		case err != nil:
			return 0, err
		case state.Running:
			unknownSince = time.Time{}
		case state.ExitCode != nil:
			return *state.ExitCode, nil
		case unknownSince.IsZero():
			unknownSince = time.Now()
		case time.Since(unknownSince) > x.engine.exitLimit:
			return 0, fmt.Errorf("waiting for an exit code: %w", ErrExitUnknown)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for an exit code: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// execState is what an inspection of an exec says. The client's own type cannot
// tell an exit code of 0 from none.
type execState struct {
	Running  bool
	ExitCode *int
}

func (x *Exec) inspect(ctx context.Context) (execState, error) {
	var state execState
	err := x.engine.Query(ctx, "asking for an exit code", func(ctx context.Context, c *client.Client) error {
		return x.engine.get(ctx, c, "/exec/"+url.PathEscape(x.id)+"/json", &state)
	})
	return state, err
}

// Close gives up the streams. The command goes on: the engine cannot end it.
func (x *Exec) Close() error {
	x.closed.Do(x.stream.close)
	return nil
}
