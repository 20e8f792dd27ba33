package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"
)

// NewFS returns the files of a workspace as an [io/fs] file system, rooted at
// the working directory. It is an [fs.StatFS], [fs.ReadDirFS], [fs.ReadFileFS]
// and [fs.ReadLinkFS]; its files can seek. Calls on it end with ctx.
//
// A directory entry's type is its own, as in [os.DirFS], so that a walk does not
// follow links and ends (contract F4).
func NewFS(ctx context.Context, ws Workspace) fs.FS { return &fileSystem{ctx: ctx, ws: ws} }

type fileSystem struct {
	ctx context.Context //nolint:containedctx // io/fs has no other way
	ws  Workspace
}

var (
	_ fs.StatFS     = (*fileSystem)(nil)
	_ fs.ReadDirFS  = (*fileSystem)(nil)
	_ fs.ReadFileFS = (*fileSystem)(nil)
	_ fs.ReadLinkFS = (*fileSystem)(nil)
)

func checkName(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// Open opens a file, or a directory for reading.
func (f *fileSystem) Open(name string) (fs.File, error) {
	if err := checkName("open", name); err != nil {
		return nil, err
	}
	info, err := f.ws.Stat(f.ctx, name)
	if err != nil {
		return nil, fileError("open", name, err)
	}
	if info.IsDir() {
		return &openDir{fsys: f, name: name, info: named(info, name)}, nil
	}
	r, err := f.ws.Open(f.ctx, name, ReadOptions{})
	if err != nil {
		return nil, fileError("open", name, err)
	}
	return &openFile{fsys: f, name: name, r: r, info: named(r.Info(), name)}, nil
}

// Stat follows links.
func (f *fileSystem) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	info, err := f.ws.Stat(f.ctx, name)
	if err != nil {
		return nil, fileError("stat", name, err)
	}
	return named(info, name), nil
}

// Lstat does not follow the last element.
func (f *fileSystem) Lstat(name string) (fs.FileInfo, error) {
	if err := checkName("lstat", name); err != nil {
		return nil, err
	}
	info, err := f.ws.Lstat(f.ctx, name)
	if err != nil {
		return nil, fileError("lstat", name, err)
	}
	return named(info, name), nil
}

// ReadLink returns what a link holds.
func (f *fileSystem) ReadLink(name string) (string, error) {
	if err := checkName("readlink", name); err != nil {
		return "", err
	}
	target, err := f.ws.Readlink(f.ctx, name)
	if err != nil {
		return "", fileError("readlink", name, err)
	}
	return target, nil
}

// ReadFile reads a whole file.
func (f *fileSystem) ReadFile(name string) ([]byte, error) {
	if err := checkName("readfile", name); err != nil {
		return nil, err
	}
	data, err := f.ws.ReadFile(f.ctx, name)
	if err != nil {
		return nil, fileError("readfile", name, err)
	}
	return data, nil
}

// ReadDir is complete and sorted by name.
func (f *fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	infos, err := f.ws.ReadDir(f.ctx, name)
	if err != nil {
		return nil, fileError("readdir", name, err)
	}
	entries := make([]fs.DirEntry, len(infos))
	for i, info := range infos {
		entries[i] = dirEntry{fsys: f, path: path.Join(name, info.Name), info: info}
	}
	return entries, nil
}

// fileError makes every error of this package's an *fs.PathError, as callers of
// io/fs expect: one about the workspace or the plugin too.
func fileError(op, name string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: op, Path: name, Err: pathErr.Err}
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// named gives a file the last element of the path by which it was asked for:
// that of the root is the path itself.
func named(info FileInfo, name string) fs.FileInfo {
	info.Name = path.Base(name)
	return fileInfo{info}
}

// fileInfo is a FileInfo as io/fs has it.
type fileInfo struct{ info FileInfo }

// Name is part of [fs.FileInfo].
func (i fileInfo) Name() string { return i.info.Name }

// Size is part of [fs.FileInfo].
func (i fileInfo) Size() int64 { return i.info.Size }

// Mode is part of [fs.FileInfo].
func (i fileInfo) Mode() fs.FileMode { return i.info.Mode }

// ModTime is part of [fs.FileInfo].
func (i fileInfo) ModTime() time.Time { return i.info.ModTime }

// IsDir is part of [fs.FileInfo].
func (i fileInfo) IsDir() bool { return i.info.IsDir() }

// Sys returns the [FileInfo].
func (i fileInfo) Sys() any { return i.info }

func (i fileInfo) String() string { return fs.FormatFileInfo(i) }

// dirEntry is an entry of a listing. Its type is its own: a link is a link.
type dirEntry struct {
	fsys *fileSystem
	path string
	info FileInfo
}

// Name is part of [fs.DirEntry].
func (e dirEntry) Name() string { return e.info.Name }

// IsDir is part of [fs.DirEntry].
func (e dirEntry) IsDir() bool { return !e.info.Link && e.info.IsDir() }

// Type is part of [fs.DirEntry].
func (e dirEntry) Type() fs.FileMode {
	if e.info.Link {
		return fs.ModeSymlink
	}
	return e.info.Mode.Type()
}

// Info is that of the entry itself; a listing tells only what a link leads to.
func (e dirEntry) Info() (fs.FileInfo, error) {
	if e.info.Link {
		return e.fsys.Lstat(e.path)
	}
	return fileInfo{e.info}, nil
}

func (e dirEntry) String() string { return fs.FormatDirEntry(e) }

// openDir is a directory that is read.
type openDir struct {
	fsys *fileSystem
	name string
	info fs.FileInfo

	mu      sync.Mutex
	entries []fs.DirEntry
	listed  bool
	closed  bool
}

var _ fs.ReadDirFile = (*openDir)(nil)

// Stat is part of [fs.ReadDirFile].
func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: syscall.EISDIR}
}

// Close is part of [fs.ReadDirFile].
func (d *openDir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.entries = true, nil
	return nil
}

// ReadDir is part of [fs.ReadDirFile].
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		entries, err := d.fsys.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.entries, d.listed = entries, true
	}
	count := len(d.entries)
	if n > 0 {
		if count == 0 {
			return nil, io.EOF
		}
		count = min(n, count)
	}
	entries := d.entries[:count:count]
	d.entries = d.entries[count:]
	return entries, nil
}

// openFile is a file that is read. A seek opens it anew where it leads, with the
// next read, and fails if it is not the same file any more.
type openFile struct {
	fsys *fileSystem
	name string
	info fs.FileInfo

	mu     sync.Mutex
	r      FileReader // nil after a seek
	offset int64
	closed bool
}

var (
	_ io.ReadSeeker = (*openFile)(nil)
	_ io.ReaderAt   = (*openFile)(nil)
)

// Stat is part of [fs.File].
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *openFile) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, f.failure("read", fs.ErrClosed)
	}
	if f.r == nil {
		r, err := f.openAt(f.offset, 0)
		if err != nil {
			return 0, err
		}
		f.r = r
	}
	n, err := f.r.Read(p)
	f.offset += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fileError("read", f.name, err)
	}
	return n, err
}

// openAt opens the file anew from an offset.
func (f *openFile) openAt(offset, length int64) (FileReader, error) {
	r, err := f.fsys.ws.Open(f.fsys.ctx, f.name, ReadOptions{Offset: offset, Length: length})
	if err != nil {
		return nil, fileError("read", f.name, err)
	}
	if now := r.Info(); now.Size != f.info.Size() || !now.ModTime.Equal(f.info.ModTime()) {
		_ = r.Close()
		return nil, f.failure("read", errChanged)
	}
	return r, nil
}

// Seek opens nothing by itself: the next read does.
func (f *openFile) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, f.failure("seek", fs.ErrClosed)
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.info.Size()
	default:
		return 0, f.failure("seek", fs.ErrInvalid)
	}
	if offset < 0 {
		return 0, f.failure("seek", fs.ErrInvalid)
	}
	if offset != f.offset && f.r != nil {
		_ = f.r.Close()
		f.r = nil
	}
	f.offset = offset
	return offset, nil
}

// ReadAt reads by a stream of its own, beside Read.
func (f *openFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, f.failure("readat", fs.ErrInvalid)
	}
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return 0, f.failure("readat", fs.ErrClosed)
	}
	if len(p) == 0 {
		return 0, nil
	}
	r, err := f.openAt(offset, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := io.ReadFull(r, p)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = io.EOF
	case err != nil && !errors.Is(err, io.EOF):
		err = fileError("readat", f.name, err)
	}
	return n, err
}

// Close ends the stream.
func (f *openFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.failure("close", fs.ErrClosed)
	}
	f.closed = true
	if f.r == nil {
		return nil
	}
	return f.r.Close()
}

func (f *openFile) failure(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

var errChanged = errors.New("the file changed since it was opened")
