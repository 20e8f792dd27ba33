package execpath

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// Stored is the files of a container that need not be running, to be read.
type Stored struct {
	config Config
	files  *archive
}

var (
	_ sdk.Stored     = (*Stored)(nil)
	_ sdk.RealPather = (*Stored)(nil)
)

// OpenStored opens a container's files by archive calls. Of the configuration User
// and Watch have no meaning: the engine reads as root.
func OpenStored(ctx context.Context, config Config) (*Stored, error) {
	files, err := newArchive(ctx, &Workspace{config: config})
	if err != nil {
		return nil, fmt.Errorf("opening the files of container %s: %w", config.ContainerID, err)
	}
	return &Stored{config: config, files: files}, nil
}

// ID is the workspace's.
func (s *Stored) ID() string { return s.config.ID }

// Incarnation is the workspace's (contract L8).
func (s *Stored) Incarnation() string { return s.config.Incarnation }

// WorkingDir is the workspace's.
func (s *Stored) WorkingDir() string { return s.config.WorkingDir }

// Stat follows links.
func (s *Stored) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return s.files.Stat(ctx, path)
}

// Lstat does not follow the last element.
func (s *Stored) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return s.files.Lstat(ctx, path)
}

// ReadDir is complete and sorted by name.
func (s *Stored) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	return s.files.ReadDir(ctx, path)
}

// Open reads a regular file.
func (s *Stored) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	return s.files.Open(ctx, path, opts)
}

// RealPath resolves like realpath -m (contract F7).
func (s *Stored) RealPath(ctx context.Context, path string) (string, error) {
	return s.files.RealPath(ctx, path)
}
