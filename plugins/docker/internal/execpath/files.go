package execpath

import (
	"context"
	"io/fs"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// Stat is part of [sdk.Filesystem].
func (w *Workspace) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return w.files.Stat(ctx, path)
}

// Lstat is part of [sdk.Filesystem].
func (w *Workspace) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return w.files.Lstat(ctx, path)
}

// ReadDir is part of [sdk.Filesystem].
func (w *Workspace) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	return w.files.ReadDir(ctx, path)
}

// Open is part of [sdk.Filesystem].
func (w *Workspace) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	return w.files.Open(ctx, path, opts)
}

// Create is part of [sdk.Filesystem].
func (w *Workspace) Create(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	return w.files.Create(ctx, path, opts)
}

// MkdirAll is part of [sdk.Filesystem].
func (w *Workspace) MkdirAll(ctx context.Context, path string) error {
	return w.files.MkdirAll(ctx, path)
}

// Remove is part of [sdk.Filesystem].
func (w *Workspace) Remove(ctx context.Context, path string) error { return w.files.Remove(ctx, path) }

// RealPath is [sdk.RealPather].
func (w *Workspace) RealPath(ctx context.Context, path string) (string, error) {
	return w.files.RealPath(ctx, path)
}

// Rename is [sdk.Renamer].
func (w *Workspace) Rename(ctx context.Context, from, to string) error {
	return w.files.Rename(ctx, from, to)
}

// Symlink is part of [sdk.Linker].
func (w *Workspace) Symlink(ctx context.Context, target, path string) error {
	return w.files.Symlink(ctx, target, path)
}

// Readlink is part of [sdk.Linker].
func (w *Workspace) Readlink(ctx context.Context, path string) (string, error) {
	return w.files.Readlink(ctx, path)
}

// Chmod is [sdk.Chmoder].
func (w *Workspace) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return w.files.Chmod(ctx, path, mode)
}

// Chtimes is [sdk.Chtimer].
func (w *Workspace) Chtimes(ctx context.Context, path string, modTime time.Time) error {
	return w.files.Chtimes(ctx, path, modTime)
}
