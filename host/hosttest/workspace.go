package hosttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// fakeWorkspace is a handle of a [Fake]. Its ref and files are guarded by the
// fake's mutex.
type fakeWorkspace struct {
	fake   *Fake
	name   string
	labels map[string]string
	future workspace.Ref // what a create will make

	ref   workspace.Ref
	files *files
}

var _ workspace.Workspace = (*fakeWorkspace)(nil)

// Ref is part of [workspace.Workspace].
func (w *fakeWorkspace) Ref() (workspace.Ref, bool) {
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	return w.ref, !w.ref.IsZero()
}

func (w *fakeWorkspace) open(ctx context.Context) (*files, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return w.fake.open(w)
}

// WorkingDir is part of [workspace.Workspace].
func (w *fakeWorkspace) WorkingDir(ctx context.Context) (string, error) {
	_, err := w.open(ctx)
	return workDir, err
}

// Features is part of [workspace.Workspace].
func (w *fakeWorkspace) Features(ctx context.Context) (workspace.Features, error) {
	_, err := w.open(ctx)
	return workspace.Features{
		workspace.FeatureCommands: true, workspace.FeatureShell: true, workspace.FeatureFiles: true, workspace.FeatureRename: true,
		workspace.FeatureExclusive: true, workspace.FeatureAttachRun: true, workspace.FeatureList: true, workspace.FeatureLabels: true,
	}, err
}

// FS is part of [workspace.Workspace].
func (w *fakeWorkspace) FS(ctx context.Context) fs.FS { return workspace.NewFS(ctx, w) }

// Run starts a scripted command and waits for it.
func (w *fakeWorkspace) Run(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
	p, err := w.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// file does something with the tree, with the caller's path in its errors.
func (w *fakeWorkspace) file(ctx context.Context, op, name string, do func(f *files, at string) error) error {
	if err := workspace.ValidatePath(op, name); err != nil {
		return err
	}
	f, err := w.open(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := do(f, clean(name)); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// Stat is part of [workspace.Workspace].
func (w *fakeWorkspace) Stat(ctx context.Context, name string) (info workspace.FileInfo, err error) {
	err = w.file(ctx, "stat", name, func(f *files, at string) (err error) { info, err = f.stat(at); return err })
	return info, err
}

// Lstat is part of [workspace.Workspace].
func (w *fakeWorkspace) Lstat(ctx context.Context, name string) (info workspace.FileInfo, err error) {
	err = w.file(ctx, "lstat", name, func(f *files, at string) (err error) { info, err = f.stat(at); return err })
	return info, err
}

// ReadDir is part of [workspace.Workspace].
func (w *fakeWorkspace) ReadDir(ctx context.Context, name string) (infos []workspace.FileInfo, err error) {
	err = w.file(ctx, "readdir", name, func(f *files, at string) (err error) { infos, err = f.readDir(at); return err })
	return infos, err
}

// MkdirAll is part of [workspace.Workspace].
func (w *fakeWorkspace) MkdirAll(ctx context.Context, name string) error {
	return w.file(ctx, "mkdir", name, (*files).mkdirAll)
}

// Remove is part of [workspace.Workspace].
func (w *fakeWorkspace) Remove(ctx context.Context, name string) error {
	return w.file(ctx, "remove", name, (*files).remove)
}

// RemoveAll is part of [workspace.Workspace].
func (w *fakeWorkspace) RemoveAll(ctx context.Context, name string) error {
	if err := w.Remove(ctx, name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RealPath is part of [workspace.Workspace].
func (w *fakeWorkspace) RealPath(ctx context.Context, name string) (resolved string, err error) {
	err = w.file(ctx, "realpath", name, func(_ *files, at string) error { resolved = at; return nil })
	return resolved, err
}

// Rename is part of [workspace.Workspace].
func (w *fakeWorkspace) Rename(ctx context.Context, from, to string) error {
	if err := workspace.ValidatePath("rename", to); err != nil {
		return err
	}
	var failed error
	err := w.file(ctx, "rename", from, func(f *files, at string) error { failed = f.rename(at, clean(to)); return nil })
	if err == nil && failed != nil {
		err = &os.LinkError{Op: "rename", Old: from, New: to, Err: failed}
	}
	return err
}

func unsupported(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: errors.ErrUnsupported}
}

// Symlink is not supported.
func (w *fakeWorkspace) Symlink(_ context.Context, _, name string) error {
	return unsupported("symlink", name)
}

// Readlink is not supported.
func (w *fakeWorkspace) Readlink(_ context.Context, name string) (string, error) {
	return "", unsupported("readlink", name)
}

// Chmod is not supported.
func (w *fakeWorkspace) Chmod(_ context.Context, name string, _ fs.FileMode) error {
	return unsupported("chmod", name)
}

// Chtimes is not supported.
func (w *fakeWorkspace) Chtimes(_ context.Context, name string, _ time.Time) error {
	return unsupported("chtimes", name)
}

// ReadFile is part of [workspace.Workspace].
func (w *fakeWorkspace) ReadFile(ctx context.Context, name string) ([]byte, error) {
	r, err := w.Open(ctx, name, workspace.ReadOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// WriteFile is part of [workspace.Workspace].
func (w *fakeWorkspace) WriteFile(ctx context.Context, name string, data []byte) error {
	fw, err := w.Create(ctx, name, workspace.WriteOptions{})
	if err != nil {
		return err
	}
	if _, err := fw.Write(data); err != nil {
		return err
	}
	return fw.Close()
}

// Open is part of [workspace.Workspace].
func (w *fakeWorkspace) Open(ctx context.Context, name string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	r := &reader{name: name}
	err := w.file(ctx, "open", name, func(f *files, at string) error {
		if opts.Offset < 0 || opts.Length < 0 {
			return fmt.Errorf("a negative offset or length: %w", workspace.ErrInvalid)
		}
		n, err := f.read(at)
		if err != nil {
			return err
		}
		r.info = info(at, n)
		data := n.data[min(opts.Offset, int64(len(n.data))):]
		if opts.Length > 0 {
			data = data[:min(opts.Length, int64(len(data)))]
		}
		r.data = bytes.NewReader(data) // a write replaces the slice, and never its bytes
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

type reader struct {
	name string
	info workspace.FileInfo

	mu     sync.Mutex
	data   *bytes.Reader
	closed bool
}

// Info is part of [workspace.FileReader].
func (r *reader) Info() workspace.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, &fs.PathError{Op: "read", Path: r.name, Err: fs.ErrClosed}
	}
	return r.data.Read(p)
}

// Close is part of [workspace.FileReader].
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// Create is part of [workspace.Workspace].
func (w *fakeWorkspace) Create(ctx context.Context, name string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	if opts.Append {
		return nil, unsupported("create", name)
	}
	err := w.file(ctx, "create", name, func(f *files, at string) error {
		if n := f.nodes[at]; n != nil && opts.Exclusive {
			return fs.ErrExist
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &writer{w: w, ctx: ctx, name: name, opts: opts}, nil
}

// writer collects a file, and puts it there whole.
type writer struct {
	w    *fakeWorkspace
	ctx  context.Context //nolint:containedctx // as the contract of Create says: it lasts until Close
	name string
	opts workspace.WriteOptions

	mu   sync.Mutex
	data []byte
	done bool
	err  error
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

// Close puts the file there.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.done = true
		w.err = w.w.file(w.ctx, "write", w.name, func(f *files, at string) error { return f.write(at, w.data, w.opts) })
	}
	return w.err
}

// Abort puts nothing there.
func (w *writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.done, w.err = true, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	return nil
}
