package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// acquireStored opens a workspace's files as they are kept, for one call: nothing
// of it is cached, since anyone may start the workspace meanwhile.
func (c *cache) acquireStored(ctx context.Context, key *berthv1.WorkspaceKey) (*entry, error) {
	id, want := key.GetId(), string(key.GetIncarnation())
	state, err := c.server.configured()
	if err != nil {
		return nil, err
	}
	reader, ok := state.provider.(StoredReader)
	if !ok {
		return nil, unsupported("provider %s cannot read those of a workspace that does not run", state.name)
	}
	var stored Stored
	err = c.server.safely("OpenStored", func() error {
		name, err := workspace.DecodeID(id)
		if err != nil {
			return err
		}
		stored, err = reader.OpenStored(ctx, name)
		if err == nil && isNil(stored) {
			err = errors.New("the provider returned no stored files and no error")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	e, err := c.open(storedWorkspace{stored})
	if err != nil {
		return nil, err
	}
	e.uses, e.forgotten = 1, true
	switch {
	case e.id != id:
		err = fmt.Errorf("provider %s: the stored files of workspace %s are those of workspace %s", state.name, id, e.id)
	case want != "" && want != e.incarnation:
		err = replaced(id)
	default:
		return e, nil
	}
	c.release(e)
	return nil, err
}

// storedWorkspace is a [Stored] as a workspace whose files cannot be changed.
type storedWorkspace struct{ Stored }

var _ Filesystem = storedWorkspace{}

// Create is refused.
func (w storedWorkspace) Create(context.Context, string, workspace.WriteOptions) (workspace.FileWriter, error) {
	return nil, workspace.ErrReadOnly
}

// MkdirAll is refused.
func (w storedWorkspace) MkdirAll(context.Context, string) error { return workspace.ErrReadOnly }

// Remove is refused.
func (w storedWorkspace) Remove(context.Context, string) error { return workspace.ErrReadOnly }

// RealPath is the provider's own, if it has one.
func (w storedWorkspace) RealPath(ctx context.Context, path string) (string, error) {
	if resolver, ok := w.Stored.(RealPather); ok {
		return resolver.RealPath(ctx, path)
	}
	return realPath(ctx, w, path)
}

// Close is the provider's own, if it has one.
func (w storedWorkspace) Close() error {
	if closer, ok := w.Stored.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
