package shellfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is a workspace of this machine's files, derived from commands.
type folder struct {
	*shellfs.FS
	id, dir string
}

func (f *folder) ID() string          { return f.id }
func (f *folder) Incarnation() string { return f.id }
func (f *folder) WorkingDir() string  { return f.dir }

// Withhold is not the embedded one's: that may be nil.
func (f *folder) Withhold() []workspace.Feature {
	if f == nil {
		return nil
	}
	return f.FS.Withhold()
}

// Announce is not either.
func (f *folder) Announce() []workspace.Feature {
	if f == nil {
		return nil
	}
	return f.FS.Announce()
}

// folders is a provider of them.
type folders struct {
	root string
	open func(ctx context.Context, dir string) (*shellfs.FS, error)
}

func (p folders) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(p.root, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder %s: %w", id, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	files, err := p.open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &folder{files, id, dir}, nil
}

// guarded knows when its folder is gone, as a runner does of its workspace.
type guarded struct {
	local
	dir string
}

func (g guarded) Run(ctx context.Context, args []string) (shellfs.Process, error) {
	if err := there(g.dir); err != nil {
		return nil, err
	}
	return g.local.Run(ctx, args)
}

// there says whether a folder is.
func there(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("folder %s: %w", dir, workspace.ErrUnavailable)
	}
	return nil
}

func (p folders) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.MkdirAll(filepath.Join(p.root, req.Key()), 0o755); err != nil {
		return nil, err
	}
	return p.Attach(ctx, req.Key())
}

func (p folders) Destroy(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(p.root, id))
}

// TestFiles is what the suite says about files, with each kind of tools.
func TestFiles(t *testing.T) {
	all := shells(t)
	delete(all, "bash") // the slowest by far: the other tests have it
	for name, shell := range all {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			plugin := sdk.Plugin[struct{}]{Name: "folders", Version: "test", Workspace: (*folder)(nil), New: func(context.Context, struct{}, sdk.Env) (sdk.Provider, error) {
				return folders{root, func(ctx context.Context, dir string) (*shellfs.FS, error) {
					return shellfs.New(ctx, shellfs.Config{Runner: guarded{shell, dir}, WorkingDir: dir})
				}}, nil
			}}
			report := conformance.Test(t, conformance.Options{
				Host: hosttest.New(t, map[string]hosttest.Registrar{"folders": plugin}), Provider: "folders",
			})
			if n := report.Count(conformance.Checked); n < 50 {
				t.Errorf("%d checks were made", n)
			}
		})
	}
}
