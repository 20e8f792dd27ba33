package transfer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/shared/workspace"
)

// Local is this machine.
func Local() Side { return localSide{} }

type localSide struct{}

func (localSide) stat(_ context.Context, path string) (workspace.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return localInfo(info, ""), nil
}

func (localSide) lstat(_ context.Context, path string) (workspace.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return localInfo(info, ""), nil
}

func (localSide) real(_ context.Context, path string) (string, error) {
	return filepath.EvalSymlinks(path)
}

func (localSide) split(path string) (folder, name string) {
	path = filepath.Clean(path)
	return filepath.Dir(path), filepath.Base(path)
}

func (localSide) checkName(name string) error { return checkLocalName(name) }
func (localSide) describe(path string) string { return path }

func (localSide) tree(_ context.Context, folder string, create bool) (tree, error) {
	if create {
		if err := os.MkdirAll(folder, 0o777); err != nil { // the caller's umask decides
			return nil, err
		}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	return &localTree{root: root}, nil
}

func localInfo(info fs.FileInfo, target string) workspace.FileInfo {
	return workspace.FileInfo{
		Name: info.Name(), Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime(),
		Link: info.Mode()&fs.ModeSymlink != 0, Target: target,
	}
}

// localTree reaches its folder by an open handle, so that no link inside leads
// out of it, even one that another process puts there meanwhile.
type localTree struct{ root *os.Root }

func (t *localTree) describe(path string) string {
	return filepath.Join(t.root.Name(), filepath.FromSlash(path))
}

func (t *localTree) close() error { return t.root.Close() }

// named puts the path as the user would write it into an error of root.
func (t *localTree) named(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: t.describe(path), Err: pathErr.Err}
	}
	return err
}

func (t *localTree) lstat(_ context.Context, path string) (workspace.FileInfo, error) {
	info, err := t.root.Lstat(path)
	if err != nil {
		return workspace.FileInfo{}, t.named(path, err)
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = t.root.Readlink(path); err != nil {
			return workspace.FileInfo{}, t.named(path, err)
		}
	}
	return localInfo(info, target), nil
}

func (t *localTree) readDir(ctx context.Context, dir string) ([]workspace.FileInfo, error) {
	f, err := t.root.Open(dir)
	if err != nil {
		return nil, t.named(dir, err)
	}
	names, err := f.Readdirnames(-1)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, t.named(dir, err)
	}
	infos := make([]workspace.FileInfo, 0, len(names))
	for _, name := range names {
		info, err := t.lstat(ctx, path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, nil
}

func (t *localTree) open(_ context.Context, path string) (io.ReadCloser, error) {
	before, err := t.root.Lstat(path)
	if err != nil {
		return nil, t.named(path, err)
	}
	f, err := t.root.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, t.named(path, err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(before, info)) {
		err = fmt.Errorf("it was replaced while it was being copied")
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: t.describe(path), Err: err}
	}
	return f, nil
}

func (t *localTree) mkdir(_ context.Context, path string, mode fs.FileMode) error {
	err := t.root.Mkdir(path, 0o700)
	if err == nil {
		err = t.root.Chmod(path, mode.Perm()) // not cut by the umask
	}
	return t.named(path, err)
}

// write goes by a file beside the target, which takes its place when it is
// complete: a link there is replaced, not followed.
func (t *localTree) write(_ context.Context, name string, mode fs.FileMode, _ *workspace.FileInfo, content io.Reader) (err error) {
	temp := path.Join(path.Dir(name), ".berth-"+rand.Text())
	f, err := t.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return t.named(name, err)
	}
	defer func() {
		if err != nil {
			// The first error is the one to tell.
			_ = f.Close()
			_ = t.root.Remove(temp)
		}
	}()
	if _, err := copyContent(f, content); err != nil {
		return t.named(name, err)
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return t.named(name, err)
	}
	if err := f.Close(); err != nil {
		return t.named(name, err)
	}
	if err := t.root.Rename(temp, name); err != nil {
		return fmt.Errorf("renaming a complete copy to %s: %w", t.describe(name), errors.Unwrap(err))
	}
	return nil
}

func (t *localTree) symlink(_ context.Context, target, path string, old *workspace.FileInfo) error {
	if old != nil {
		if err := t.root.Remove(path); err != nil {
			return t.named(path, err)
		}
	}
	if err := t.root.Symlink(target, path); err != nil {
		return fmt.Errorf("making the link %s: %w", t.describe(path), errors.Unwrap(err))
	}
	return nil
}

func (t *localTree) chmod(_ context.Context, path string, mode fs.FileMode) error {
	return t.named(path, t.root.Chmod(path, mode.Perm()))
}
