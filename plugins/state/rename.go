package state

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"
)

// Rename moves an entry as rename(2) does: a link itself, over a file or an
// empty directory at its new place.
func (d *document) Rename(ctx context.Context, from, to string) error {
	var big bool
	err := d.store.update(ctx, durable, func(t tx) error {
		r, root, err := d.open(t)
		if err != nil {
			return err
		}
		big, err = rename(t, r, root, from, to)
		return err
	})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	if big {
		d.sweeper.kick()
	}
	return nil
}

func rename(t tx, r record, root node, from, to string) (big bool, err error) {
	src, err := (&walker{tx: t, root: root, last: entryLast}).walk(from)
	if err != nil {
		return false, err
	}
	dst, err := (&walker{tx: t, root: root, last: entryLast}).walk(to)
	if err != nil {
		return false, err
	}
	switch {
	case src.name == "" || dst.name == "": // the root, . or ..
		return false, syscall.EBUSY
	case !src.found:
		return false, syscall.ENOENT
	case src.node.kind != kindDir && (src.slash || dst.slash):
		return false, syscall.ENOTDIR
	case holds(dst.steps, src.node):
		return false, syscall.EINVAL // into itself
	case dst.found && dst.node.id == src.node.id:
		return false, nil
	case dst.found && holds(src.steps, dst.node):
		return false, syscall.ENOTEMPTY // onto a directory that it is in
	case dst.found && dst.node.kind == kindDir && src.node.kind != kindDir:
		return false, syscall.EISDIR
	case dst.found && dst.node.kind != kindDir && src.node.kind == kindDir:
		return false, syscall.ENOTDIR
	}
	if dst.found {
		if dst.node.kind == kindDir {
			below, err := t.children(dst.node.id, "", 1)
			if err != nil {
				return false, err
			}
			if len(below) > 0 {
				return false, syscall.ENOTEMPTY
			}
		}
		if big, err = discard(t, r, dst.node); err != nil {
			return false, err
		}
	}
	moved := src.node
	moved.parent, moved.name = dst.dir().id, dst.name
	if err := t.updateNode(moved); err != nil {
		return false, err
	}
	now := time.Now()
	if err := t.touch(src.dir().id, now); err != nil {
		return false, err
	}
	return big, t.touch(dst.dir().id, now)
}

// holds reports whether a node is among the steps.
func holds(steps []step, n node) bool {
	return n.kind == kindDir && slices.ContainsFunc(steps, func(s step) bool { return s.node.id == n.id })
}
