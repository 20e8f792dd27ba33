package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// eagerRead is the size of a file up to which Open reads it at once. Contents
	// of that size have no readers between transactions, and are deleted without
	// asking for any. It is part of the format: every process that uses a store
	// must go by the same.
	eagerRead = chunkSize
	// readPieces is how many pieces a reader takes from the store at a time,
	// which bounds its memory to 1 MiB.
	readPieces = 4
)

// reader reads a file as it was when opened. It holds no transaction between
// calls: a content never changes, and a lease keeps it from being reclaimed.
type reader struct {
	ctx  context.Context //nolint:containedctx // it lasts as long as the reader
	d    *document
	path string
	info workspace.FileInfo

	mu       sync.Mutex
	content  int64
	pos, end int64
	buf      []byte // room for what was read
	unread   []byte // the part of buf that is still to be delivered
	lease    *lease // nil once everything was read
	closed   bool
}

// errEnough ends the reading of pieces.
var errEnough = errors.New("enough was read")

var _ workspace.FileReader = (*reader)(nil)

// Open reads a regular file from any offset.
func (d *document) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	r := &reader{ctx: ctx, d: d, path: path, lease: d.sweeper.lease(ctx)}
	err := d.view(ctx, "open", path, func(t tx, root node) error {
		n, err := stat(t, root, path, followLast)
		switch {
		case err != nil:
			return err
		case n.kind == kindDir:
			return syscall.EISDIR
		case opts.Offset < 0 || opts.Length < 0:
			return fmt.Errorf("offset %d and length %d must not be negative: %w", opts.Offset, opts.Length, workspace.ErrInvalid)
		}
		r.info = fileInfo(baseName(path), n, n)
		r.content = n.content
		r.pos, r.end = min(opts.Offset, n.size), n.size
		if opts.Length > 0 {
			r.end = min(r.end, r.pos+min(opts.Length, n.size))
		}
		if n.size > eagerRead {
			seq, err := t.lastGarbage()
			d.sweeper.hold(r.lease, seq)
			return err
		}
		for r.pos < r.end && err == nil {
			err = r.fill(t)
		}
		return err
	})
	if err != nil || r.pos == r.end {
		d.sweeper.release(r.lease)
		r.lease = nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Info is the file as it was when opened.
func (r *reader) Info() workspace.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, pathError("read", r.path, fs.ErrClosed)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.unread) == 0 {
		if r.pos == r.end {
			return 0, io.EOF
		}
		r.buf = r.buf[:0]
		if err := r.d.store.view(r.ctx, r.fill); err != nil {
			return 0, pathError("read", r.path, err)
		}
		if r.pos == r.end {
			r.done()
		}
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// fill appends the next pieces to buf, and makes all of buf unread.
func (r *reader) fill(t tx) error {
	before := r.pos
	err := t.readData(r.content, r.pos, readPieces, func(offset int64, piece []byte) error {
		switch {
		case r.pos == r.end:
			return errEnough
		case offset > r.pos: // what comes between was deleted
			return r.lost()
		}
		if skip := r.pos - offset; skip < int64(len(piece)) {
			piece = piece[skip:]
			piece = piece[:min(int64(len(piece)), r.end-r.pos)]
			r.buf = append(r.buf, piece...)
			r.pos += int64(len(piece))
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil && r.pos == before {
		err = r.lost()
	}
	r.unread = r.buf
	return err
}

func (r *reader) lost() error {
	return fmt.Errorf("what the file held when it was opened is gone, at byte %d of %d: the plugin stood still for too long while the file was replaced: %w", r.pos, r.info.Size, workspace.ErrTransient)
}

func (r *reader) done() {
	if r.lease != nil {
		r.d.sweeper.release(r.lease)
		r.lease = nil
	}
}

// Close ends the lease on what was read.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done()
	r.closed, r.buf, r.unread = true, nil, nil
	return nil
}
