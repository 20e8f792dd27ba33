package state

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// document is one open workspace. It holds nothing but its name: every call
// looks at the store afresh, which other processes change too.
type document struct {
	id          int64
	root        int64
	key         string
	incarnation string
	store       store
	sweeper     *sweeper
}

var (
	_ sdk.Workspace  = (*document)(nil)
	_ sdk.Filesystem = (*document)(nil)
	_ sdk.RealPather = (*document)(nil)
	_ sdk.Renamer    = (*document)(nil)
	_ sdk.Linker     = (*document)(nil)
	_ sdk.Chmoder    = (*document)(nil)
	_ sdk.Chtimer    = (*document)(nil)
	_ sdk.Announcer  = (*document)(nil)
)

// ID is the name asked for, or the token.
func (d *document) ID() string { return d.key }

// Incarnation is random, and kept with the workspace.
func (d *document) Incarnation() string { return d.incarnation }

// WorkingDir is the document's root.
func (d *document) WorkingDir() string { return "/" }

// Announce tells that files can be made exclusively and appended to.
func (d *document) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureExclusive, workspace.FeatureAppend}
}

// view runs fn on one consistent state of the document.
func (d *document) view(ctx context.Context, op, path string, fn func(tx, node) error) error {
	return pathError(op, path, d.store.view(ctx, func(t tx) error {
		_, root, err := d.open(t)
		if err != nil {
			return err
		}
		return fn(t, root)
	}))
}

// update runs fn as one change of the document.
func (d *document) update(ctx context.Context, op, path string, fn func(tx, record, node) error) error {
	return pathError(op, path, d.store.update(ctx, durable, func(t tx) error {
		r, root, err := d.open(t)
		if err != nil {
			return err
		}
		return fn(t, r, root)
	}))
}

// open finds the workspace that this handle knows (contract L8).
func (d *document) open(t tx) (record, node, error) {
	r, root, ok, err := t.document(d.id)
	if err == nil && (!ok || r.incarnation != d.incarnation) {
		err = fmt.Errorf("workspace %s: it was destroyed: %w", d.key, workspace.ErrUnavailable)
	}
	return r, root, err
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// baseName is the last element of a path as it was given.
func baseName(path string) string {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return "/"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}
