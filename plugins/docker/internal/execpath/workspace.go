package execpath

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

var errClosed = fmt.Errorf("the workspace was closed: %w", fs.ErrClosed)

// Config says which container is a workspace.
type Config struct {
	// Engine is where the container runs.
	Engine *engine.Engine
	// ContainerID is the engine's own id of it. It must be running.
	ContainerID string
	// ID is the provider's name of the workspace; ContainerID if empty.
	ID string
	// Incarnation is the workspace's; ContainerID if empty (contract L8).
	Incarnation string
	// WorkingDir is absolute and canonical, and exists.
	WorkingDir string
	// User is who commands and file operations are; the container's own if empty.
	User string
	// UID and GID are that user's numbers, for what is made in a container without a
	// shell, where nobody can be asked.
	UID, GID int
	// Available says why the workspace cannot be used any more, as an error that
	// wraps [workspace.ErrUnavailable]; nil or any other error if it can be, or if
	// that is not known. If nil, the container's own state tells.
	Available func(ctx context.Context) error
	// Watch is [sdk.Watcher]'s; nil asks Available from time to time.
	Watch func(ctx context.Context) error
}

// Workspace is a container by exec calls. All methods may be called concurrently.
type Workspace struct {
	config Config
	files  files
	base   map[string]string // what the container gives every command
	keeper keeper            // nothing in a container without a shell
	shell  bool
	tasks  sync.WaitGroup // goroutines that copy streams
	alive  context.Context
	end    context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	ends     context.Context // ends with the container: see follow
	idle     []*shell
}

// files is what both ways to a container's files have.
type files interface {
	sdk.Filesystem
	sdk.RealPather
	sdk.Renamer
	sdk.Linker
	sdk.Chmoder
	sdk.Chtimer
	sdk.Announcer
	sdk.Withholder
}

var _ interface {
	sdk.Workspace
	sdk.Commander
	files
	sdk.Watcher
	Close() error
} = (*Workspace)(nil)

// New opens a running container. It asks it once for a shell and what that has,
// which takes an exec or two.
func New(ctx context.Context, config Config) (*Workspace, error) {
	if config.ID == "" {
		config.ID = config.ContainerID
	}
	if config.Incarnation == "" {
		config.Incarnation = config.ContainerID
	}
	w := &Workspace{config: config, shell: true}
	w.keeper.ws = w
	w.alive, w.end = context.WithCancel(context.Background())
	if config.Watch != nil {
		w.tasks.Go(w.follow)
	}
	err := w.open(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening container %s: %w", config.ContainerID, err), w.Close())
	}
	return w, nil
}

func (w *Workspace) open(ctx context.Context) error {
	environ, status, err := w.keeper.ask(ctx, "cat /proc/$$/environ")
	switch {
	case errors.Is(err, errNoShell):
		w.shell = false
		w.files, err = newArchive(ctx, w)
		return err
	case err == nil && status != 0:
		err = fmt.Errorf("reading the environment in the container: cat ended with %d", status)
	}
	if err != nil {
		return err
	}
	w.base = parseEnviron(environ)
	w.files, err = shellfs.New(ctx, shellfs.Config{Runner: w, WorkingDir: w.config.WorkingDir})
	return err
}

// ID is the provider's name of the workspace.
func (w *Workspace) ID() string { return w.config.ID }

// Incarnation tells this container from another in its place (contract L8).
func (w *Workspace) Incarnation() string { return w.config.Incarnation }

// WorkingDir is absolute and canonical (contract C2).
func (w *Workspace) WorkingDir() string { return w.config.WorkingDir }

// Announce tells the features that no method shows.
func (w *Workspace) Announce() []workspace.Feature {
	if w == nil || w.files == nil {
		return nil
	}
	features := w.files.Announce()
	if w.shell {
		features = append(features, workspace.FeatureShell)
	}
	return features
}

// Withhold tells the features that this container lacks though there are methods.
func (w *Workspace) Withhold() []workspace.Feature {
	if w == nil || w.files == nil {
		return nil
	}
	features := w.files.Withhold()
	if !w.shell {
		features = append(features, workspace.FeatureCommands)
	}
	return features
}

// watchPause is between two looks at a container's state: a command in one that was
// removed ends by itself, since its stream does; this is for the others.
const watchPause = time.Second

// Watch returns an error that wraps [workspace.ErrUnavailable] when the container
// is gone, or ctx's error (contract L7).
func (w *Workspace) Watch(ctx context.Context) error {
	if w.config.Watch != nil {
		return w.config.Watch(ctx)
	}
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		if err := w.available(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// follow ends all streams when the container has ended: the engine does not always
// end those of a container that was removed, and whoever reads them would wait. One
// that was stopped may be started again.
func (w *Workspace) follow() {
	end := w.renew()
	for w.alive.Err() == nil {
		if err := w.config.Watch(w.alive); errors.Is(err, workspace.ErrUnavailable) {
			last := end
			end = w.renew() // for what comes with the container's next start
			last()
		}
		w.pause() // it stands still, or could not be watched
	}
	end()
}

// renew makes what ending returns from here on, and returns what ends that.
func (w *Workspace) renew() context.CancelFunc {
	ending, end := context.WithCancel(w.alive)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = ending
	return end
}

func (w *Workspace) pause() {
	select {
	case <-w.alive.Done():
	case <-time.After(watchPause):
	}
}

// ending ends when the container does, or the workspace here.
func (w *Workspace) ending() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends == nil {
		return w.alive
	}
	return w.ends
}

// Close gives up the shells that are kept, and stops what still runs. Background
// children of commands that ended go on.
func (w *Workspace) Close() error {
	w.mu.Lock()
	w.isClosed = true
	idle := w.idle
	w.idle = nil
	w.mu.Unlock()
	for _, s := range idle {
		s.close()
	}
	w.end()
	w.keeper.close()
	w.tasks.Wait()
	return nil
}

// exec starts something of ours in the container, from / since the working
// directory may be gone, and marked with a name.
func (w *Workspace) exec(ctx context.Context, cmd []string, name string) (*engine.Exec, error) {
	x, err := w.config.Engine.Exec(ctx, w.config.ContainerID, engine.ExecOptions{
		Cmd: cmd, Env: []string{runVariable + "=" + name}, Dir: "/", User: w.config.User, Stdin: true,
	})
	if err == nil {
		return x, nil
	}
	if gone := w.available(ctx); gone != nil {
		return nil, gone
	}
	return nil, err
}

// broken is a stream that ended before its time: because the workspace is gone, or
// for a reason that may pass.
func (w *Workspace) broken(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, errNoShell) {
		return err
	}
	if gone := w.available(ctx); gone != nil {
		return gone
	}
	return fmt.Errorf("%s: %w: %w", doing, err, workspace.ErrTransient)
}

// available returns an error only if it is known that the workspace is gone.
func (w *Workspace) available(ctx context.Context) error {
	ask := w.config.Available
	if ask == nil {
		ask = w.running
	}
	if err := ask(ctx); errors.Is(err, workspace.ErrUnavailable) {
		return err
	}
	return nil
}

const (
	// goneWait is how long a container whose processes were killed may take to say
	// that it ends: the engine hears of the one before the other.
	goneWait = 2 * time.Second
	// goneLook lies between two looks.
	goneLook = 50 * time.Millisecond
)

// goneSoon is available of a container of which a shell was found dead.
func (w *Workspace) goneSoon(ctx context.Context) error {
	gone := w.available(ctx)
	for deadline := time.Now().Add(goneWait); gone == nil && ctx.Err() == nil && time.Now().Before(deadline); {
		_ = sleep(ctx, goneLook)
		gone = w.available(ctx)
	}
	return gone
}

func (w *Workspace) inspect(ctx context.Context) (state container.InspectResponse, err error) {
	err = w.config.Engine.Query(ctx, "asking for the state of container "+w.config.ContainerID, func(ctx context.Context, c *client.Client) error {
		state, err = c.ContainerInspect(ctx, w.config.ContainerID)
		return err
	})
	return state, err
}

func (w *Workspace) running(ctx context.Context) error {
	state, err := w.inspect(ctx)
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("container %s was removed: %w", w.config.ContainerID, workspace.ErrUnavailable)
	case err != nil:
		return err
	case state.State == nil || state.State.Running && !state.State.Paused:
		return nil
	}
	reason := ""
	if state.State.OOMKilled {
		reason = ", killed for lack of memory"
	}
	return fmt.Errorf("container %s is %s%s: %w", w.config.ContainerID, state.State.Status, reason, workspace.ErrUnavailable)
}

// newName is a word that nobody else knows.
func newName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
