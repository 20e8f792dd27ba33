package execpath

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

// archiveWriter gathers a file on this machine's disk: an archive tells sizes first.
type archiveWriter struct {
	file  *os.File
	a     *archive
	ctx   context.Context // ends the write; see [workspace.Filesystem]
	name  string
	entry tar.Header // of the file, whose name is its path
	done  bool
}

// Create writes through an existing link, keeps the mode and the owner of an existing
// file, and makes missing parents.
func (a *archive) Create(ctx context.Context, name string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	const op = "create"
	if opts.Exclusive || opts.Append || !opts.ModTime.IsZero() {
		return nil, unsupported(op, name)
	}
	entry, err := a.target(ctx, a.path(name), opts.Mode)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	file, err := staging()
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("gathering it on this machine: %w", err)}
	}
	return &archiveWriter{file: file, a: a, ctx: ctx, name: name, entry: entry}, nil
}

// target is the entry for a file that is to be written.
func (a *archive) target(ctx context.Context, abs string, mode fs.FileMode) (tar.Header, error) {
	resolved, err := a.resolve(ctx, abs, true)
	if err != nil {
		return tar.Header{}, err
	}
	if mode == 0 {
		mode = workspace.DefaultFileMode
	}
	entry := tar.Header{Typeflag: tar.TypeReg, Name: resolved, Mode: int64(mode.Perm()), Uid: a.uid, Gid: a.gid}
	stat, err := a.head(ctx, resolved)
	switch {
	case errdefs.IsNotFound(err):
		if errors.Is(a.missing(ctx, resolved, err), syscall.ENOTDIR) {
			return entry, syscall.ENOTDIR
		}
		return entry, nil
	case err != nil:
		return entry, err
	}
	if err := regular(stat.Mode); err != nil {
		return entry, err
	}
	d, old, err := a.file(ctx, resolved)
	if err != nil {
		return entry, err
	}
	// Writing to a file takes the bits from it that change who runs it.
	entry.Mode, entry.Uid, entry.Gid = old.Mode&int64(fs.ModePerm), old.Uid, old.Gid
	return entry, d.Close()
}

// staging is a file that is gone when it is closed, or this process ends, where the
// system lets an open file be removed.
func staging() (*os.File, error) {
	file, err := os.CreateTemp("", "berth-*")
	if err == nil {
		_ = os.Remove(file.Name())
	}
	return file, err
}

// Write gathers.
func (w *archiveWriter) Write(p []byte) (int, error) { return w.file.Write(p) }

// Close publishes what was written.
func (w *archiveWriter) Close() error {
	if w.done {
		return nil
	}
	w.done = true
	defer w.discard()
	err := w.ctx.Err()
	if err == nil {
		w.entry.Size, err = w.file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return &fs.PathError{Op: "close", Path: w.name, Err: err}
	}
	return w.a.explain(w.ctx, "close", w.name, w.a.publish(w.ctx, w.entry, w.file))
}

// Abort leaves the file as it was.
func (w *archiveWriter) Abort() error {
	if !w.done {
		w.done = true
		w.discard()
	}
	return nil
}

func (w *archiveWriter) discard() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}

// MkdirAll makes a directory and its parents (contract F5).
func (a *archive) MkdirAll(ctx context.Context, name string) error {
	return a.explain(ctx, "mkdir", name, a.mkdirAll(ctx, a.path(name)))
}

func (a *archive) mkdirAll(ctx context.Context, abs string) error {
	resolved, err := a.resolve(ctx, abs, true)
	if err != nil {
		return err
	}
	stat, err := a.head(ctx, resolved)
	switch {
	case err == nil && stat.Mode.IsDir():
		return nil
	case err == nil:
		return fs.ErrExist
	case !errdefs.IsNotFound(err):
		return err
	case errors.Is(a.missing(ctx, resolved, err), syscall.ENOTDIR):
		return syscall.ENOTDIR
	}
	return a.put(ctx, container.CopyToContainerOptions{}, nil, a.newDirectory(resolved))
}

func (a *archive) newDirectory(abs string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: abs, Mode: int64(workspace.DefaultDirMode), Uid: a.uid, Gid: a.gid}
}
