package execpath

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// archiveWriter gathers a file on this machine: an archive tells sizes first.
type archiveWriter struct {
	file   *os.File
	a      *archive
	ctx    context.Context // ends the write; see [workspace.Filesystem]
	name   string
	target string
	mode   fs.FileMode
	done   bool
}

// Create writes through an existing link and makes missing parents.
func (a *archive) Create(ctx context.Context, name string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	const op = "create"
	if opts.Exclusive || opts.Append || !opts.ModTime.IsZero() {
		return nil, &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
	}
	resolved, err := a.resolve(ctx, a.path(name), true)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	mode := opts.Mode
	if mode == 0 {
		mode = workspace.DefaultFileMode
	}
	stat, err := a.head(ctx, resolved)
	switch {
	case err == nil:
		if err := regular(stat.Mode); err != nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: err}
		}
		mode = stat.Mode
	case !errdefs.IsNotFound(err):
		return nil, a.explain(ctx, op, name, err)
	case errors.Is(a.missing(ctx, resolved, err), syscall.ENOTDIR):
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	file, err := os.CreateTemp("", "berth-*")
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("gathering it on this machine: %w", err)}
	}
	return &archiveWriter{file: file, a: a, ctx: ctx, name: name, target: resolved, mode: mode}, nil
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
	if err := w.ctx.Err(); err != nil {
		return &fs.PathError{Op: "close", Path: w.name, Err: err}
	}
	size, err := w.file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = w.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return &fs.PathError{Op: "close", Path: w.name, Err: err}
	}
	return w.a.explain(w.ctx, "close", w.name, w.a.put(w.ctx, w.target, w.mode, size, w.file))
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
	const op = "mkdir"
	resolved, err := a.resolve(ctx, a.path(name), true)
	if err != nil {
		return a.explain(ctx, op, name, err)
	}
	stat, err := a.head(ctx, resolved)
	switch {
	case err == nil && stat.Mode.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	case !errdefs.IsNotFound(err):
		return a.explain(ctx, op, name, err)
	case errors.Is(a.missing(ctx, resolved, err), syscall.ENOTDIR):
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return a.explain(ctx, op, name, a.put(ctx, resolved, fs.ModeDir|workspace.DefaultDirMode, 0, nil))
}

// put sends a file or directory, with the parents that are missing.
func (a *archive) put(ctx context.Context, abs string, mode fs.FileMode, size int64, content io.Reader) error {
	base := path.Dir(abs)
	var parents []string
	for ; base != "/"; base = path.Dir(base) {
		_, err := a.head(ctx, base)
		if err == nil {
			break
		}
		if !errdefs.IsNotFound(err) {
			return err
		}
		parents = append(parents, base)
	}
	read, write := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = write.CloseWithError(a.pack(write, base, abs, parents, mode, size, content))
	}()
	err := a.w.config.Engine.Stream(ctx, putSilence, "writing a file of container "+a.w.config.ContainerID, func(ctx context.Context, c *client.Client, alive func()) error {
		return c.CopyToContainer(ctx, a.w.config.ContainerID, base, &noticed{read, alive}, container.CopyToContainerOptions{})
	})
	_ = read.Close()
	<-sent
	return err
}

// putSilence is how long the engine may take nothing of an archive: it writes to a
// disk.
const putSilence = 2 * time.Minute

// noticed says of each read that the engine is there.
type noticed struct {
	from  io.Reader
	alive func()
}

func (n *noticed) Read(p []byte) (int, error) {
	n.alive()
	return n.from.Read(p)
}

func (a *archive) pack(to io.Writer, base, abs string, parents []string, mode fs.FileMode, size int64, content io.Reader) error {
	w := tar.NewWriter(to)
	now := time.Now()
	relative := func(abs string) string { return strings.TrimPrefix(strings.TrimPrefix(abs, base), "/") }
	for _, dir := range slices.Backward(parents) {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative(dir) + "/", Mode: int64(workspace.DefaultDirMode), Uid: a.uid, Gid: a.gid, ModTime: now})
		if err != nil {
			return err
		}
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: relative(abs), Size: size, Mode: int64(mode.Perm()), Uid: a.uid, Gid: a.gid, ModTime: now}
	if mode.IsDir() {
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if content != nil {
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
	}
	return w.Close()
}
