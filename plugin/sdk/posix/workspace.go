package posix

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// watchInterval is how often a watched folder is looked at: a command in a
// workspace that is destroyed ends within it (contract L7), and a look costs
// microseconds.
const watchInterval = 100 * time.Millisecond

// Config says which folder is a workspace.
type Config struct {
	// Dir is the folder. It must exist, unless WholeMachine is set.
	Dir string
	// WholeMachine says that the workspace is this machine, as it is inside a
	// container, and Dir only where commands start and relative paths begin. It
	// may be missing, removed, replaced or made again while the workspace goes
	// on: what needs it then fails with [fs.ErrNotExist].
	WholeMachine bool
	// ID is the provider's name of the workspace.
	ID string
	// Incarnation tells this folder from another one that is later put in its
	// place. If empty it is made from the folder's inode and birth time, which
	// survive a restart (contract L8); of a whole machine it is what is given.
	Incarnation string
	// Env is the complete environment of its commands, to which a command adds
	// its own. Nothing else reaches them (contract C9).
	Env map[string]string
}

// Workspace is an open folder. All methods may be called concurrently.
type Workspace struct {
	id, incarnation string
	dir             string // absolute and canonical
	env             map[string]string
	root            *os.File // held, so that its inode names no other folder; nil of a whole machine
	rootInfo        fs.FileInfo
	commands        commands
}

var _ interface {
	sdk.Workspace
	sdk.Commander
	sdk.Filesystem
	sdk.RealPather
	sdk.Renamer
	sdk.Linker
	sdk.Chmoder
	sdk.Chtimer
	sdk.Announcer
	sdk.Watcher
	Close() error
} = (*Workspace)(nil)

// Open opens a folder as a workspace. A folder that is not there is an
// [*fs.PathError] for which errors.Is finds [fs.ErrNotExist]. Nothing is
// started before the first command.
func Open(config Config) (*Workspace, error) {
	ws := &Workspace{id: config.ID, incarnation: config.Incarnation, env: maps.Clone(config.Env)}
	err := workspace.ValidateEnv(config.Env)
	if err == nil {
		ws.dir, err = filepath.Abs(config.Dir)
	}
	switch {
	case err != nil:
	case config.WholeMachine:
		ws.dir, err = realPath(ws.dir)
	default:
		err = ws.hold()
	}
	if err != nil {
		return nil, fmt.Errorf("opening folder %s: %w", config.Dir, err)
	}
	ws.commands.open()
	return ws, nil
}

// hold opens the folder, so that no other is taken for it later.
func (w *Workspace) hold() error {
	dir, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		return err
	}
	root, err := openDir(dir)
	if err != nil {
		return err
	}
	info, err := root.Stat()
	if err == nil && w.incarnation == "" {
		w.incarnation, err = incarnation(root)
	}
	if err != nil {
		return errors.Join(err, root.Close())
	}
	w.dir, w.root, w.rootInfo = dir, root, info
	return nil
}

// ID is the provider's name of the workspace.
func (w *Workspace) ID() string { return w.id }

// Incarnation tells this folder from another in its place (contract L8).
func (w *Workspace) Incarnation() string { return w.incarnation }

// WorkingDir is the folder, absolute and canonical (contract C2).
func (w *Workspace) WorkingDir() string { return w.dir }

// Announce tells what no method shows.
func (w *Workspace) Announce() []workspace.Feature {
	features := []workspace.Feature{workspace.FeatureExclusive, workspace.FeatureAppend}
	if hasShell() {
		features = append(features, workspace.FeatureShell)
	}
	return features
}

// Watch returns an error that wraps [workspace.ErrUnavailable] when the folder
// was removed or replaced, or ctx's error (contract L7). A whole machine does
// not go away before this process.
func (w *Workspace) Watch(ctx context.Context) error {
	if w.root == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if err := w.available(); errors.Is(err, workspace.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Close releases what this process holds. Files, running commands and
// background children stay as they are; no method may be called after it.
func (w *Workspace) Close() error {
	w.commands.close()
	if w.root == nil {
		return nil
	}
	return w.root.Close()
}

// available reports whether the path still leads to the folder that was opened
// (contract L8). The folder is held open, so that no other one can have its
// inode number. A whole machine always is.
func (w *Workspace) available() error {
	if w.root == nil {
		return nil
	}
	info, err := os.Stat(w.dir)
	switch {
	case err == nil && os.SameFile(info, w.rootInfo):
		return nil
	case err == nil:
		return fmt.Errorf("folder %s was replaced by another: %w", w.dir, workspace.ErrUnavailable)
	case errors.Is(err, fs.ErrNotExist), isNotDir(err):
		return fmt.Errorf("folder %s was removed: %w", w.dir, workspace.ErrUnavailable)
	}
	return err
}

// path makes a path absolute without touching .. and links in it, which only
// the file system can resolve.
func (w *Workspace) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return w.dir + "/" + path
}

// do runs one operation on a file, in a workspace that is there before it and,
// should it fail, after it.
func (w *Workspace) do(ctx context.Context, op, path string, f func(abs string) error) error {
	if err := workspace.ValidatePath(op, path); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	leave, err := enterCall(ctx)
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	defer leave()
	if err := w.available(); err != nil {
		return err
	}
	err = f(w.path(path))
	if err == nil {
		return nil
	}
	if gone := w.available(); errors.Is(gone, workspace.ErrUnavailable) {
		return gone
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: cause(err)}
}

// cause takes the name of the call and the path off an error of package os.
func cause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	var callErr *os.SyscallError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	case errors.As(err, &callErr):
		return callErr.Err
	}
	return err
}
