package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// slowSteps is how many steps, each on disk, a create of the plugin slow takes.
const slowSteps = 20

type slowConfig struct {
	Root     string `json:"root" berth:"path"`
	StepMS   int    `json:"step_ms"`
	Password string `json:"password" berth:"secret"`
}

// slowPlugin makes a folder as a service makes a machine: step by step, and
// found again by its token.
func slowPlugin() sdk.Plugin[slowConfig] {
	return sdk.Plugin[slowConfig]{
		Name: "slow", Version: "test", Workspace: (*slowWorkspace)(nil), Environment: []string{"SLOW_*"},
		Companions: []string{"slow-helper", "slow-rest"},
		New: func(_ context.Context, config slowConfig, env sdk.Env) (sdk.Provider, error) {
			env.Logger.Info("configured", "password", config.Password)
			return &slowProvider{config}, nil
		},
	}
}

type slowProvider struct{ config slowConfig }

func (p *slowProvider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	dir := filepath.Join(p.config.Root, req.Key())
	for step := range slowSteps {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(step)), 0o755); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(p.config.StepMS) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &slowWorkspace{id: req.Key(), dir: dir}, nil
}

func (p *slowProvider) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	dir := filepath.Join(p.config.Root, id)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", workspace.ErrUnavailable, err)
	}
	return &slowWorkspace{id: id, dir: dir}, nil
}

func (p *slowProvider) Destroy(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(p.config.Root, id))
}

// slowWorkspace can tell of files, and what environment its plugin has: the file
// env:NAME is there if the variable is, and is as large as its value; beside:NAME is
// the file of that name beside the plugin's own binary.
type slowWorkspace struct{ id, dir string }

func (w *slowWorkspace) ID() string          { return w.id }
func (w *slowWorkspace) Incarnation() string { return "" }
func (w *slowWorkspace) WorkingDir() string  { return w.dir }

func (w *slowWorkspace) Stat(_ context.Context, path string) (workspace.FileInfo, error) {
	if name, ok := cutEnv(path); ok {
		value, set := os.LookupEnv(name)
		if !set {
			return workspace.FileInfo{}, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
		}
		return workspace.FileInfo{Name: "env", Size: int64(len(value))}, nil
	}
	if name, ok := strings.CutPrefix(filepath.Base(path), "beside:"); ok {
		self, err := os.Executable()
		if err != nil {
			return workspace.FileInfo{}, err
		}
		path = filepath.Join(filepath.Dir(self), name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return workspace.FileInfo{Name: info.Name(), Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime()}, nil
}

func cutEnv(path string) (string, bool) {
	base := filepath.Base(path)
	if len(base) > 4 && base[:4] == "env:" {
		return base[4:], true
	}
	return "", false
}

func (w *slowWorkspace) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return w.Stat(ctx, path)
}

func (w *slowWorkspace) ReadDir(context.Context, string) ([]workspace.FileInfo, error) {
	return nil, errors.ErrUnsupported
}

func (w *slowWorkspace) Open(context.Context, string, workspace.ReadOptions) (workspace.FileReader, error) {
	return nil, errors.ErrUnsupported
}

func (w *slowWorkspace) Create(context.Context, string, workspace.WriteOptions) (workspace.FileWriter, error) {
	return nil, errors.ErrUnsupported
}

func (w *slowWorkspace) MkdirAll(context.Context, string) error { return errors.ErrUnsupported }
func (w *slowWorkspace) Remove(context.Context, string) error   { return errors.ErrUnsupported }
