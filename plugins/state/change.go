package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// MkdirAll makes a directory and its parents (contract F5).
func (d *document) MkdirAll(ctx context.Context, path string) error {
	// Most are there already: that takes no turn among the writers.
	if info, err := d.Stat(ctx, path); err == nil && info.IsDir() {
		return nil
	}
	return d.update(ctx, "mkdir", path, func(t tx, _ record, root node) error {
		now := time.Now()
		w := walker{tx: t, root: root, last: newLast, miss: makeMissing, made: now}
		p, err := w.walk(path)
		switch {
		case err != nil:
			return err
		case !p.found:
			_, err := (&walker{tx: t, miss: makeMissing, made: now}).missing(p.dir(), p.name, true, 1)
			return err
		case p.node.kind == kindLink:
			target, err := stat(t, root, path, followLast)
			if errors.Is(err, syscall.ELOOP) || err == nil && target.kind == kindDir {
				return err
			}
			return syscall.EEXIST
		case p.node.kind != kindDir:
			return syscall.EEXIST
		}
		return nil
	})
}

// Symlink makes path a link that holds target.
func (d *document) Symlink(ctx context.Context, target, path string) error {
	switch {
	case target == "":
		return pathError("symlink", path, syscall.ENOENT)
	case len(target) > maxTargetLen:
		return pathError("symlink", path, syscall.ENAMETOOLONG)
	}
	return d.update(ctx, "symlink", path, func(t tx, _ record, root node) error {
		w := walker{tx: t, root: root, last: newLast}
		p, err := w.walk(path)
		switch {
		case err != nil:
			return err
		case p.found:
			return syscall.EEXIST
		case p.slash:
			return syscall.ENOENT
		}
		n := node{parent: p.dir().id, name: p.name, kind: kindLink, mode: linkMode, modTime: time.Now(), target: target}
		if err := t.insertNode(&n); err != nil {
			return err
		}
		return t.touch(n.parent, n.modTime)
	})
}

// Chmod changes permissions; a link's target's, not its own.
func (d *document) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return d.change(ctx, "chmod", path, func(n *node) { n.mode = mode & modeBits })
}

// Chtimes changes the modification time; a link's target's, not its own.
func (d *document) Chtimes(ctx context.Context, path string, modTime time.Time) error {
	return d.change(ctx, "chtimes", path, func(n *node) { n.modTime = modTime })
}

func (d *document) change(ctx context.Context, op, path string, fn func(*node)) error {
	return d.update(ctx, op, path, func(t tx, _ record, root node) error {
		n, err := stat(t, root, path, followLast)
		if err != nil {
			return err
		}
		fn(&n)
		return t.updateNode(n)
	})
}

// Remove takes a file, a link itself, or a tree, which leaves the document at
// once and is reclaimed afterwards (contract F6).
func (d *document) Remove(ctx context.Context, path string) error {
	var big bool
	err := d.update(ctx, "remove", path, func(t tx, r record, root node) error {
		w := walker{tx: t, root: root, last: entryLast}
		p, err := w.walk(path)
		switch {
		case err != nil:
			return err
		case !p.found:
			return syscall.ENOENT
		case p.node.id == root.id:
			return fmt.Errorf("the working directory cannot be removed: %w", workspace.ErrInvalid)
		case p.dots && p.name == "":
			return syscall.EINVAL // as unlink and rmdir refuse it
		}
		if big, err = discard(t, r, p.node); err != nil {
			return err
		}
		return t.touch(p.node.parent, time.Now())
	})
	if err == nil && big {
		d.sweeper.kick()
	}
	return err
}

// discard takes a node out of the document. It reports whether something is
// left to be reclaimed.
func discard(t tx, r record, n node) (big bool, err error) {
	if n.kind == kindDir {
		below, err := t.children(n.id, "", 1)
		if err != nil {
			return false, err
		}
		if len(below) > 0 {
			return true, discardTree(t, r.id, n)
		}
	}
	if err := t.deleteNode(n.id); err != nil {
		return false, err
	}
	return discardContent(t, r.id, n)
}

// discardContent takes away what a file held.
func discardContent(t tx, ws int64, n node) (big bool, err error) {
	if n.content == 0 {
		return false, nil
	}
	if err := t.addUsed(ws, -n.size); err != nil {
		return false, err
	}
	if n.size <= eagerRead { // nobody reads it any more: see reader
		for done := false; !done && err == nil; {
			done, err = t.deleteData(n.content, sweepPieces)
		}
		return false, err
	}
	return true, t.addGarbage(&garbage{workspace: ws, content: n.content})
}

// discardTree moves a whole tree out of the document by changing its top alone.
func discardTree(t tx, ws int64, n node) error {
	g := garbage{workspace: ws, tree: n.id}
	if err := t.addGarbage(&g); err != nil {
		return err
	}
	n.parent, n.name = trashParent, trashName(g.seq)
	return t.updateNode(n)
}

// trashName is the name of a tree among the removed ones.
func trashName(seq int64) string { return strconv.FormatInt(seq, 10) }
