package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Stop ends what runs in a workspace and keeps its files; the next operation on a
// handle of it starts it again. One that is stopped already is success, one that is
// gone [workspace.ErrUnavailable]. A provider whose workspaces have nothing to stop,
// or would lose their files by it, says [errors.ErrUnsupported].
func (h *Host) Stop(ctx context.Context, ref workspace.Ref) (err error) {
	p, err := h.providerOf(ref)
	if err != nil {
		return err
	}
	op := operation{name: "stop", on: ref.String(), changes: true}
	ctx, ob := p.observe(ctx, opStop, attrWorkspace.String(ref.String()))
	defer func() { ob.end(err) }()
	_, err = unary(ctx, p, op, func(ctx context.Context, c berthv1.ProviderClient) (*berthv1.StopResponse, error) {
		return c.Stop(ctx, &berthv1.StopRequest{Id: ref.ID})
	})
	return err
}

// OpenStored returns the files of a workspace as they are kept, without starting
// it. A provider that cannot read them so says [errors.ErrUnsupported]; whether the
// workspace is there is found out by the first operation.
func (h *Host) OpenStored(ctx context.Context, ref workspace.Ref) (workspace.Stored, error) {
	p, err := h.providerOf(ref)
	if err != nil {
		return nil, err
	}
	op := operation{name: "open stored files", on: ref.String()}
	inst, err := p.acquire(ctx)
	if err != nil {
		return nil, op.wrap(err)
	}
	defer inst.Release()
	// A plugin that does not know the key's mark would start the workspace.
	if !slices.Contains(inst.Configured().GetFeatures(), string(workspace.FeatureStored)) {
		return nil, op.wrap(fmt.Errorf("provider %s cannot read those of a workspace that does not run: %w", p.name, errors.ErrUnsupported))
	}
	files, err := newAttached(p, ref, nil)
	if err != nil {
		return nil, err
	}
	files.session = &session{key: &berthv1.WorkspaceKey{Id: ref.ID, Stored: true}}
	return storedFiles{files.observed()}, nil
}

// storedFiles is a handle of which only the files can be read.
type storedFiles struct{ files workspace.Workspace }

var _ workspace.Stored = storedFiles{}

// Stat follows links.
func (s storedFiles) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return s.files.Stat(ctx, path)
}

// Lstat does not follow the last element.
func (s storedFiles) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return s.files.Lstat(ctx, path)
}

// ReadDir is complete and sorted by name.
func (s storedFiles) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	return s.files.ReadDir(ctx, path)
}

// Open reads a regular file.
func (s storedFiles) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	return s.files.Open(ctx, path, opts)
}

// RealPath resolves like realpath -m (contract F7).
func (s storedFiles) RealPath(ctx context.Context, path string) (string, error) {
	return s.files.RealPath(ctx, path)
}
