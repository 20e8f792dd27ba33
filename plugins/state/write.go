package state

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// writer writes a file. What does not fit into one chunk is staged by a short
// transaction per chunk; Close publishes all of it by one.
type writer struct {
	ctx  context.Context //nolint:containedctx // it lasts as long as the writer
	d    *document
	path string
	opts workspace.WriteOptions

	mu       sync.Mutex
	buf      []byte
	content  int64 // what is staged, zero if nothing is
	size     int64 // of what is staged
	replaces int64 // the size of the file that was there at the start
	err      error // why the writer is over, if not by Close or Abort
	done     bool  // by Close or Abort
}

var _ workspace.FileWriter = (*writer)(nil)

// Create writes a file. Nothing of it is visible before Close, which makes
// missing parents too.
func (d *document) Create(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	w := &writer{ctx: ctx, d: d, path: path, opts: opts}
	err := d.view(ctx, "open", path, func(t tx, root node) error {
		p, err := w.target(t, root, pretendMissing, time.Time{})
		if !opts.Append {
			w.replaces = p.node.size
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// target finds what is to be written, and whether it may be.
func (w *writer) target(t tx, root node, miss onMissing, now time.Time) (place, error) {
	last := followLast
	if w.opts.Exclusive {
		last = keepLast
	}
	p, err := (&walker{tx: t, root: root, last: last, miss: miss, file: true, made: now}).walk(w.path)
	switch {
	case err != nil:
	case p.name == "": // the root, or a path that ends in . or ..
		err = syscall.EISDIR
	case p.found && w.opts.Exclusive:
		err = syscall.EEXIST
	case p.found && p.node.kind == kindDir:
		err = syscall.EISDIR
	}
	return p, err
}

func (w *writer) Write(data []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(data) > 0 {
		if err := w.check(); err != nil {
			return n, err
		}
		part := data[:min(len(data), chunkSize-len(w.buf))]
		w.buf = append(w.buf, part...)
		n, data = n+len(part), data[len(part):]
		if len(w.buf) == chunkSize {
			if err := w.stage(); err != nil {
				return n, w.fail(err)
			}
		}
	}
	return n, nil
}

// check reports why nothing more can be written.
func (w *writer) check() error {
	if w.done {
		return pathError("write", w.path, fs.ErrClosed)
	}
	if w.err == nil && w.ctx.Err() != nil {
		return w.fail(w.ctx.Err())
	}
	return pathError("write", w.path, w.err)
}

// fail ends the writer and leaves the file as it was.
func (w *writer) fail(err error) error {
	w.err = err
	w.drop()
	return pathError("write", w.path, err)
}

// stage writes the buffer to the store, where nobody sees it yet.
func (w *writer) stage() error {
	first := w.content == 0
	content := w.content
	err := w.d.store.update(w.ctx, lazy, func(t tx) error {
		r, _, err := w.d.open(t)
		if err != nil {
			return err
		}
		if err := w.checkStaging(t, r); err != nil {
			return err
		}
		if first {
			if content, err = t.newContent(); err != nil {
				return err
			}
			err = t.stage(staged{content: content, workspace: w.d.id, session: w.d.sweeper.session, bytes: int64(len(w.buf)), replaces: w.replaces})
		} else {
			err = given(t.growStaged(content, int64(len(w.buf))))
		}
		if err != nil {
			return err
		}
		if err := t.showLife(w.d.sweeper.session, time.Now()); err != nil {
			return err
		}
		return t.appendData(content, w.size, w.buf)
	})
	if err != nil {
		return err
	}
	if first {
		w.content = content
		w.d.sweeper.watch(w)
	}
	w.size += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// given is an error where an upload is no longer known.
func given(known bool, err error) error {
	if err == nil && !known {
		err = fmt.Errorf("the upload was given up: the plugin stood still for too long: %w", workspace.ErrTransient)
	}
	return err
}

// checkStaging refuses early what could not be published.
func (w *writer) checkStaging(t tx, r record) error {
	size := w.size + int64(len(w.buf))
	if err := r.limits.checkFile(size); err != nil {
		return err
	}
	if r.limits.total == 0 {
		return nil
	}
	others, err := t.stagedBytes(r.id)
	if err != nil {
		return err
	}
	growth := max(size-w.replaces, 0) - max(w.size-w.replaces, 0)
	return checkTotal(t, r, others+growth)
}

// Close publishes what was written, as one change.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	if err := w.check(); err != nil {
		return err
	}
	var big bool
	err := w.d.update(w.ctx, "write", w.path, func(t tx, r record, root node) (err error) {
		big, err = w.publish(t, r, root)
		return err
	})
	if err != nil {
		w.err = err
		w.drop()
		return err
	}
	w.done, w.buf, w.content = true, nil, 0
	w.d.sweeper.unwatch(w)
	if big {
		w.d.sweeper.kick()
	}
	return nil
}

// publish makes what was written the file's. It reports whether something is
// left to be reclaimed.
func (w *writer) publish(t tx, r record, root node) (big bool, err error) {
	now := time.Now()
	p, err := w.target(t, root, makeMissing, now)
	if err != nil {
		return false, err
	}
	if w.content != 0 {
		if err := given(t.unstage(w.content)); err != nil {
			return false, err
		}
	}
	n, added := p.node, w.size+int64(len(w.buf))
	if !p.found {
		n = node{parent: p.dir().id, name: p.name, kind: kindFile, mode: workspace.DefaultFileMode}
		if w.opts.Mode != 0 {
			n.mode = w.opts.Mode & modeBits
		}
	}
	kept := int64(0)
	if w.opts.Append {
		kept = n.size
	}
	if err := r.limits.checkFile(kept + added); err != nil {
		return false, err
	}
	if err := checkTotal(t, r, kept+added-n.size); err != nil {
		return false, err
	}
	if kept == 0 {
		if big, err = discardContent(t, r.id, n); err != nil {
			return false, err
		}
		n.content, n.size = 0, 0
	}
	if err := w.fillContent(t, &n); err != nil {
		return false, err
	}
	if err := t.addUsed(r.id, added); err != nil {
		return false, err
	}
	n.modTime = now
	if !w.opts.ModTime.IsZero() {
		n.modTime = w.opts.ModTime
	}
	if p.found {
		return big, t.updateNode(n)
	}
	if err := t.insertNode(&n); err != nil {
		return false, err
	}
	return big, t.touch(n.parent, now)
}

// fillContent adds what was staged, and what is left in the buffer, to a file.
func (w *writer) fillContent(t tx, n *node) (err error) {
	switch {
	case w.content != 0 && n.content == 0:
		n.content = w.content
	case w.content != 0:
		err = t.joinContent(n.content, n.size, w.content)
	case n.content == 0 && len(w.buf) > 0:
		n.content, err = t.newContent()
	}
	if err != nil {
		return err
	}
	n.size += w.size
	if err := t.appendData(n.content, n.size, w.buf); err != nil {
		return err
	}
	n.size += int64(len(w.buf))
	return nil
}

// Abort leaves the file as it was.
func (w *writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.done = true
		w.drop()
	}
	return nil
}

// giveUp ends a writer that nobody closed: Close will say why.
func (w *writer) giveUp(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = why
	}
	w.drop()
}

// expire gives up a writer whose context has ended, and tries again to drop
// what one that is over left behind.
func (w *writer) expire() {
	w.mu.Lock()
	over := w.done || w.err != nil
	w.mu.Unlock()
	if over || w.ctx.Err() != nil {
		w.giveUp(w.ctx.Err())
	}
}

// drop leaves what was staged to be reclaimed. What cannot be dropped now is
// tried again by the sweeper, which watches the writer until then.
func (w *writer) drop() {
	w.buf = nil
	if w.content == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), busyTimeout)
	defer cancel()
	err := w.d.store.update(ctx, lazy, func(t tx) error {
		known, err := t.unstage(w.content)
		if err != nil || !known {
			return err
		}
		return t.addGarbage(&garbage{workspace: w.d.id, content: w.content})
	})
	if err != nil {
		w.d.sweeper.log.Warn("what an aborted upload staged is not dropped yet", "workspace", w.d.key, "error", err)
		return
	}
	w.content = 0
	w.d.sweeper.unwatch(w)
	w.d.sweeper.kick()
}

func (l limits) checkFile(size int64) error {
	if l.file > 0 && size > l.file {
		return fmt.Errorf("a file may hold %d bytes at most (max_file_size): %w", l.file, syscall.EFBIG)
	}
	return nil
}

// checkTotal refuses to add more to a workspace than its limit. Removed trees
// count until they are settled, which is done when it matters.
func checkTotal(t tx, r record, delta int64) error {
	if r.limits.total == 0 || delta <= 0 || r.used+delta <= r.limits.total {
		return nil
	}
	trees, err := t.garbageTrees(r.id)
	if err != nil {
		return err
	}
	used := r.used
	for _, g := range trees {
		size, err := t.treeSize(g.tree)
		if err != nil {
			return err
		}
		if err := t.addUsed(r.id, -size); err != nil {
			return err
		}
		if err := t.settleGarbage(g.seq); err != nil {
			return err
		}
		used -= size
	}
	if used+delta > r.limits.total {
		return fmt.Errorf("the workspace may hold %d bytes at most (max_total_size) and holds %d: %w", r.limits.total, used, syscall.ENOSPC)
	}
	return nil
}
