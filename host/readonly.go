package host

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// ReadOnly wraps a workspace so that nothing is changed through it: commands and
// whatever changes a file fail with [workspace.ErrReadOnly], before anything
// starts. Opening it still creates a workspace that is not there yet.
func ReadOnly(ws workspace.Workspace) workspace.Workspace { return readOnly{ws} }

type readOnly struct{ workspace.Workspace }

// changing are the features that a read-only workspace does not have.
func changing() []workspace.Feature {
	return []workspace.Feature{
		workspace.FeatureCommands, workspace.FeatureShell, workspace.FeatureAttachRun, workspace.FeatureRename,
		workspace.FeatureChmod, workspace.FeatureChtimes, workspace.FeatureExclusive, workspace.FeatureAppend,
	}
}

// Features leaves out what is refused.
func (w readOnly) Features(ctx context.Context) (workspace.Features, error) {
	features, err := w.Workspace.Features(ctx)
	features = maps.Clone(features)
	for _, f := range changing() {
		delete(features, f)
	}
	return features, err
}

func refused(op, path string) error {
	return &fs.PathError{Op: op, Path: path, Err: workspace.ErrReadOnly}
}

// Run is refused.
func (w readOnly) Run(context.Context, workspace.Command) (*workspace.Result, error) {
	return nil, fmt.Errorf("run: %w", workspace.ErrReadOnly)
}

// Start is refused.
func (w readOnly) Start(context.Context, workspace.Command) (workspace.Process, error) {
	return nil, fmt.Errorf("run: %w", workspace.ErrReadOnly)
}

// AttachRun is refused: it takes a run's outcome, and may signal it.
func (w readOnly) AttachRun(context.Context, string, workspace.AttachOptions) (workspace.Process, error) {
	return nil, fmt.Errorf("attach run: %w", workspace.ErrReadOnly)
}

// StopRun is refused.
func (w readOnly) StopRun(context.Context, string) error {
	return fmt.Errorf("stop run: %w", workspace.ErrReadOnly)
}

// Create is refused.
func (w readOnly) Create(_ context.Context, path string, _ workspace.WriteOptions) (workspace.FileWriter, error) {
	return nil, refused("create", path)
}

// WriteFile is refused.
func (w readOnly) WriteFile(_ context.Context, path string, _ []byte) error {
	return refused("write", path)
}

// MkdirAll is refused.
func (w readOnly) MkdirAll(_ context.Context, path string) error { return refused("mkdir", path) }

// Remove is refused.
func (w readOnly) Remove(_ context.Context, path string) error { return refused("remove", path) }

// RemoveAll is refused.
func (w readOnly) RemoveAll(_ context.Context, path string) error { return refused("remove", path) }

// Rename is refused.
func (w readOnly) Rename(_ context.Context, from, to string) error {
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: workspace.ErrReadOnly}
}

// Symlink is refused.
func (w readOnly) Symlink(_ context.Context, target, path string) error {
	return &os.LinkError{Op: "symlink", Old: target, New: path, Err: workspace.ErrReadOnly}
}

// Chmod is refused.
func (w readOnly) Chmod(_ context.Context, path string, _ fs.FileMode) error {
	return refused("chmod", path)
}

// Chtimes is refused.
func (w readOnly) Chtimes(_ context.Context, path string, _ time.Time) error {
	return refused("chtimes", path)
}

// FS reads through the wrapper.
func (w readOnly) FS(ctx context.Context) fs.FS { return workspace.NewFS(ctx, w) }
