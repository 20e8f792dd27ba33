package execpath

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

//go:embed loop.sh
var loopScript string

//go:embed keeper.sh
var keeperScript string

const (
	// shellStart is how long a shell in the container may take to say that it is
	// there: an exec takes 60 ms, on a busy machine seconds.
	shellStart = time.Minute
	// exitWait is how long the engine may take to tell how a shell ended whose
	// outputs have ended.
	exitWait = 10 * time.Second
)

// errNoShell is a container without /bin/sh.
var errNoShell = fmt.Errorf("the container has no /bin/sh: %w", errors.ErrUnsupported)

// shell is a shell that is kept in the container. It answers one request after the
// other.
type shell struct {
	ws     *Workspace
	name   string // its value of [runVariable]
	exec   *engine.Exec
	pid    int // in the container, as far as the shell tells
	word   string
	out    *lane
	errs   *lane
	status string // of the latest answer; read after errs has ended
	copied chan struct{}
	closed sync.Once
}

// newShell starts one, with a library of functions.
func (w *Workspace) newShell(ctx context.Context, library string) (*shell, error) {
	ctx, cancel := context.WithTimeout(ctx, shellStart)
	defer cancel()
	s := &shell{ws: w, name: newName(), word: newName(), copied: make(chan struct{})}
	s.out = newLane(s.word, false, func(string) bool { return true })
	s.errs = newLane(s.word, true, func(text string) bool { s.status = text; return true })
	x, err := w.exec(ctx, []string{"/bin/sh", "-c", loopScript, "sh", library}, s.name)
	if err != nil {
		return nil, err
	}
	s.exec = x
	w.tasks.Go(func() { //nolint:contextcheck // the shell outlives the call that started it
		defer close(s.copied)
		stop := context.AfterFunc(w.ending(), func() { _ = x.Close() })
		defer stop()
		err := x.Copy(s.out, s.errs)
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		s.out.fail(err)
		s.errs.fail(err)
	})
	stop := context.AfterFunc(ctx, s.close)
	_, err = io.WriteString(x, s.word+"\n")
	if err == nil {
		err = s.answered()
	}
	if err == nil {
		s.pid, err = strconv.Atoi(s.status)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		err = s.explain(ctx, err)
		s.close()
		return nil, err
	}
	return s, nil
}

// answered waits for the answer to what takes no output.
func (s *shell) answered() error {
	if _, err := io.Copy(io.Discard, s.out); err != nil {
		return err
	}
	_, err := s.errs.wait()
	return err
}

// explain says why a shell did not begin.
func (s *shell) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("starting a shell in the container: %w", context.Cause(ctx))
	}
	<-s.copied
	text, _ := s.errs.wait()
	waitCtx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	code, waitErr := s.exec.Wait(waitCtx)
	if gone := s.ws.available(ctx); gone != nil {
		return gone
	}
	switch {
	case waitErr != nil:
		return fmt.Errorf("starting a shell in the container: %w", waitErr)
	case code != workspace.ExitNotFound && code != workspace.ExitNotExecutable:
	case s.ws.lacksShell(ctx):
		return errNoShell
	default: // the engine says so as well where it cannot make a process
		return fmt.Errorf("starting a shell in the container: the engine could not execute /bin/sh (%d), perhaps at a limit of processes or memory: %w", code, workspace.ErrTransient)
	}
	return fmt.Errorf("starting a shell in the container: it ended with %d %s: %w: %w", code, strings.TrimSpace(string(text)), err, workspace.ErrTransient)
}

// lacksShell looks for a shell without executing anything.
func (w *Workspace) lacksShell(ctx context.Context) bool {
	err := w.config.Engine.Query(ctx, "looking for a shell in container "+w.config.ContainerID, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerStatPath(ctx, w.config.ContainerID, "/bin/sh")
		return err
	})
	return errdefs.IsNotFound(err)
}

// send asks for something.
func (s *shell) send(line string) error {
	s.out.begin()
	s.errs.begin()
	_, err := io.WriteString(s.exec, s.word+" "+line+"\n")
	return err
}

// result is how the latest request ended. Its output must have been read.
func (s *shell) result() (status int, stderr []byte, err error) {
	stderr, err = s.errs.wait()
	if err != nil {
		return 0, stderr, err
	}
	status, err = strconv.Atoi(s.status)
	return status, stderr, err
}

// close ends the shell, and with it what it runs: its input ends.
func (s *shell) close() {
	s.closed.Do(func() {
		s.out.discard()
		s.errs.discard()
		_ = s.exec.Close()
	})
}

// call is a request to a kept shell, as [shellfs.Process].
type call struct {
	shell *shell
	stop  func() bool
	rest  func()          // ends its waking
	ctx   context.Context // ends the request
	once  sync.Once

	mu   sync.Mutex
	over bool // answered, and fit for the next
}

var _ shellfs.Process = (*call)(nil)

// maxIdleShells is how many shells are kept for the next file operations. A shell
// is a process of a megabyte in the container.
const maxIdleShells = 4

// Run is [shellfs.Runner].
func (w *Workspace) Run(ctx context.Context, args []string) (shellfs.Process, error) {
	for {
		s, fresh, err := w.takeShell(ctx)
		if err != nil {
			return nil, err
		}
		c := &call{shell: s, ctx: ctx}
		err = s.send(setNewline + "set --" + quoteAll(args) + `; "$@"`)
		if err == nil {
			c.stop = context.AfterFunc(ctx, s.close)
			c.rest = w.wake(ctx, s.rouse)
			return c, nil
		}
		s.close()
		if fresh { // one that was kept may have been killed meanwhile: nothing was done
			return nil, w.broken(ctx, "sending a file operation", err)
		}
	}
}

func (w *Workspace) takeShell(ctx context.Context) (s *shell, fresh bool, err error) {
	w.mu.Lock()
	if w.isClosed {
		w.mu.Unlock()
		return nil, false, errClosed
	}
	for len(w.idle) > 0 {
		s = w.idle[len(w.idle)-1]
		w.idle = w.idle[:len(w.idle)-1]
		select {
		case <-s.copied: // it has ended meanwhile
			s.close()
			continue
		default:
		}
		w.mu.Unlock()
		return s, false, nil
	}
	w.mu.Unlock()
	s, err = w.newShell(ctx, shellfs.Library())
	return s, true, err
}

func (w *Workspace) putShell(s *shell) {
	w.mu.Lock()
	keep := !w.isClosed && len(w.idle) < maxIdleShells
	if keep {
		w.idle = append(w.idle, s)
	}
	w.mu.Unlock()
	if !keep {
		s.close()
	}
}

func (c *call) Write(p []byte) (int, error) {
	n, err := c.shell.exec.Write(p)
	return n, c.explain("writing to a file operation", err)
}

func (c *call) Read(p []byte) (int, error) {
	n, err := c.shell.out.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.explain("reading from a file operation", err)
	} else if err != nil && c.ctx.Err() != nil {
		err = c.ctx.Err()
	}
	return n, err
}

// Wait is for after the end of the output.
func (c *call) Wait() (int, []byte, error) {
	status, stderr, err := c.shell.result()
	if err != nil {
		return 0, stderr, c.explain("ending a file operation", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = status <= shellfs.KeepsInput
	return status, stderr, nil
}

func (c *call) explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	}
	return c.shell.ws.broken(c.ctx, doing, err)
}

// Close keeps a shell that has answered, and ends any other.
func (c *call) Close() error {
	c.once.Do(func() {
		c.rest()
		stopped := c.stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if stopped && c.over {
			c.shell.ws.putShell(c.shell)
			return
		}
		c.shell.close()
	})
	return nil
}
