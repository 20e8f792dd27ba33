package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

// Remote is a workspace, which name tells in errors. A permission that it
// cannot set is told to note, once.
func Remote(ws workspace.Workspace, name string, note func(string)) Side {
	return &remoteSide{ws: ws, name: name, note: note}
}

type remoteSide struct {
	ws        workspace.Workspace
	name      string
	note      func(string)
	noteGiven bool
}

func (s *remoteSide) describe(path string) string { return s.name + ":" + path }

// named says which workspace an error is from.
func (s *remoteSide) named(err error) error { return display.In(s.name, err) }

func (s *remoteSide) stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	info, err := s.ws.Stat(ctx, path)
	return info, s.named(err)
}

func (s *remoteSide) lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	info, err := s.ws.Lstat(ctx, path)
	return info, s.named(err)
}

func (s *remoteSide) real(ctx context.Context, path string) (string, error) {
	resolved, err := s.ws.RealPath(ctx, path)
	return resolved, s.named(err)
}

// split does not clean the path as a whole: what a/.. means, where a is a link,
// only the workspace knows.
func (s *remoteSide) split(p string) (folder, name string) {
	if trimmed := strings.TrimRight(p, "/"); trimmed != "" {
		p = trimmed
	} else {
		return "/", "/"
	}
	folder, name = path.Split(p)
	switch {
	case folder == "":
		folder = "."
	case strings.Trim(folder, "/") == "":
		folder = "/"
	default:
		folder = strings.TrimRight(folder, "/")
	}
	return folder, name
}

func (s *remoteSide) checkName(name string) error { return checkName(name) }

func (s *remoteSide) tree(ctx context.Context, folder string, create bool) (tree, error) {
	if create && folder != "." && folder != "/" {
		if err := s.ws.MkdirAll(ctx, folder); err != nil {
			return nil, s.named(err)
		}
	}
	return &remoteTree{remoteSide: s, folder: folder}, nil
}

type remoteTree struct {
	*remoteSide
	folder string
}

func (t *remoteTree) path(path string) string     { return join(t.folder, path) }
func (t *remoteTree) describe(path string) string { return t.remoteSide.describe(t.path(path)) }
func (t *remoteTree) close() error                { return nil }

func (t *remoteTree) lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return t.remoteSide.lstat(ctx, t.path(path))
}

func (t *remoteTree) readDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	infos, err := t.ws.ReadDir(ctx, t.path(path))
	return infos, t.named(err)
}

func (t *remoteTree) open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := t.ws.Open(ctx, t.path(path), workspace.ReadOptions{})
	if err != nil {
		return nil, t.named(err)
	}
	return r, nil
}

func (t *remoteTree) mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	if err := t.ws.MkdirAll(ctx, t.path(path)); err != nil {
		return t.named(err)
	}
	if mode.Perm() == workspace.DefaultDirMode {
		return nil
	}
	return t.chmod(ctx, path, mode)
}

func (t *remoteTree) write(ctx context.Context, path string, mode fs.FileMode, old *workspace.FileInfo, content io.Reader) error {
	if old != nil && old.Link { // a write would go through it
		if err := t.ws.Remove(ctx, t.path(path)); err != nil {
			return t.named(err)
		}
		old = nil
	}
	mode = mode.Perm()
	if err := Write(ctx, t.ws, t.path(path), workspace.WriteOptions{Mode: mode}, content); err != nil {
		return t.named(err)
	}
	// A file that is there keeps its mode, and no mode at all means the default.
	if old != nil && old.Mode.Perm() != mode || mode == 0 {
		return t.chmod(ctx, path, mode)
	}
	return nil
}

func (t *remoteTree) symlink(ctx context.Context, target, path string, old *workspace.FileInfo) error {
	if old != nil {
		if err := t.ws.Remove(ctx, t.path(path)); err != nil {
			return t.named(err)
		}
	}
	return t.named(t.ws.Symlink(ctx, target, t.path(path)))
}

func (t *remoteTree) chmod(ctx context.Context, path string, mode fs.FileMode) error {
	err := t.ws.Chmod(ctx, t.path(path), mode.Perm())
	if errors.Is(err, errors.ErrUnsupported) {
		if !t.noteGiven {
			t.note(t.name + " cannot set permissions: some are not copied")
			t.noteGiven = true
		}
		return nil
	}
	return t.named(err)
}

// Write streams content into a workspace's file. What fails leaves the file as
// it was, where the provider can.
func Write(ctx context.Context, ws workspace.Workspace, path string, opts workspace.WriteOptions, content io.Reader) error {
	w, err := ws.Create(ctx, path, opts)
	if err != nil {
		return err
	}
	if _, err := copyContent(w, content); err != nil {
		// The first error is the one to tell; Abort's would repeat it.
		_ = w.Abort()
		return err
	}
	return w.Close()
}
