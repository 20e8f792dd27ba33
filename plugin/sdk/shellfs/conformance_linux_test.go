package shellfs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) {
	posix.Main()
	goleak.VerifyTestMain(m)
}

// folder is a workspace whose commands are this machine's, and whose files are
// derived from commands.
type folder struct {
	*shellfs.FS
	commands *posix.Workspace
}

func (f *folder) ID() string                      { return f.commands.ID() }
func (f *folder) Incarnation() string             { return f.commands.Incarnation() }
func (f *folder) WorkingDir() string              { return f.commands.WorkingDir() }
func (f *folder) Watch(ctx context.Context) error { return f.commands.Watch(ctx) }
func (f *folder) Close() error                    { return f.commands.Close() }

func (f *folder) Start(ctx context.Context, cmd sdk.Command) (sdk.Process, error) {
	return f.commands.Start(ctx, cmd)
}

// Withhold is not the embedded one's: that may be nil.
func (f *folder) Withhold() []workspace.Feature {
	if f == nil {
		return nil
	}
	return f.FS.Withhold()
}

func (f *folder) Announce() []workspace.Feature {
	if f == nil {
		return nil
	}
	return append(f.FS.Announce(), workspace.FeatureShell)
}

// folders is a provider of them.
type folders struct {
	root  string
	shell local
}

func (p folders) open(ctx context.Context, id string) (sdk.Workspace, error) {
	commands, err := posix.Open(posix.Config{Dir: filepath.Join(p.root, id), ID: id, Env: map[string]string{"PATH": p.shell.path}})
	if err != nil {
		return nil, err
	}
	files, err := shellfs.New(ctx, shellfs.Config{Runner: p.shell, WorkingDir: commands.WorkingDir()})
	if err != nil {
		return nil, err
	}
	return &folder{files, commands}, nil
}

func (p folders) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.MkdirAll(filepath.Join(p.root, req.Key()), 0o755); err != nil {
		return nil, err
	}
	return p.open(ctx, req.Key())
}

func (p folders) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	if _, err := os.Stat(filepath.Join(p.root, id)); err != nil {
		return nil, fmt.Errorf("folder %s: %w", id, workspace.ErrUnavailable)
	}
	return p.open(ctx, id)
}

func (p folders) Destroy(_ context.Context, id string) error {
	return posix.RemoveTree(filepath.Join(p.root, id))
}

// TestFiles is what the suite says about files, with every shell and its tools.
func TestFiles(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			plugin := sdk.Plugin[struct{}]{Name: "folders", Version: "test", Workspace: (*folder)(nil), New: func(context.Context, struct{}, sdk.Env) (sdk.Provider, error) {
				return folders{root, shell}, nil
			}}
			report := conformance.Test(t, conformance.Options{
				Host: hosttest.New(t, map[string]hosttest.Registrar{"folders": plugin}), Provider: "folders",
			})
			for _, l := range report.Lines {
				if l.Rule()[0] == 'F' && l.Status == conformance.Absent && l.Check != "F10_Chtimes" {
					t.Errorf("%s: %s", l.Check, l.Reason)
				}
			}
		})
	}
}
