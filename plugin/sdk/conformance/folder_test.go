package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// folderPlugin is a provider for these tests: a folder a workspace, on
// sdk/posix, with everything that the suite has hooks for. What its service
// would do to a workspace, the tests do to its folders.
const folderPlugin = "folder"

type folderConfig struct {
	Root string            `json:"root"`
	Env  map[string]string `json:"env,omitempty" berth:"per_workspace"`
	// Sub is where below its folder a workspace begins: fixed at create.
	Sub string `json:"sub,omitempty" berth:"per_workspace"`
	// Name is the only workspace, if given.
	Name string `json:"name,omitempty"`
}

func newFolderPlugin() sdk.Plugin[folderConfig] {
	return sdk.Plugin[folderConfig]{
		Name: folderPlugin, Version: "test", Workspace: (*posix.Workspace)(nil),
		New: func(_ context.Context, config folderConfig, _ sdk.Env) (sdk.Provider, error) {
			return &folders{config}, nil
		},
	}
}

// folders keeps workspaces in root/w, its records in root/r, stopped ones in
// root/s, and reads orders from root/fail and root/slow.
type folders struct{ config folderConfig }

type folderRecord struct {
	Sub  string
	Name string
}

func (f *folders) at(kind, key string) string { return filepath.Join(f.config.Root, kind, key) }

func (f *folders) record(key string) (folderRecord, error) {
	var r folderRecord
	b, err := os.ReadFile(f.at("r", key))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// checkName refuses whatever is not the configured name, if there is one.
func (f *folders) checkName(key string) error {
	if f.config.Name != "" && key != f.config.Name {
		return fmt.Errorf("%s: this provider is configured with the name %s: %w", key, f.config.Name, workspace.ErrInvalid)
	}
	return nil
}

func (f *folders) checkOurs(key string) error {
	if _, err := os.Stat(f.at("w", key)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(f.at("r", key)); errors.Is(err, fs.ErrNotExist) && f.config.Name == "" {
		return fmt.Errorf("%s was made by somebody else: %w", key, workspace.ErrInvalid)
	}
	return nil
}

func (f *folders) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	config, err := sdk.Override(f.config, req.Overrides)
	if err != nil {
		return nil, err
	}
	key := req.Key()
	if f.config.Name != "" && req.Name == "" {
		key = f.config.Name
	}
	if err := errors.Join(f.checkName(key), f.checkOurs(key)); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(f.config.Root, "fail")); err == nil {
		return nil, errors.New("told to fail")
	}
	if b, err := os.ReadFile(filepath.Join(f.config.Root, "slow")); err == nil {
		d, err := time.ParseDuration(string(b))
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	record, err := json.Marshal(folderRecord{Sub: config.Sub, Name: req.Name})
	if err != nil {
		return nil, err
	}
	if err := f.keep(key, record); err != nil {
		return nil, err
	}
	return f.Attach(ctx, key)
}

// keep makes a record and its folder, if nobody has yet. The record comes
// first, and whole: a folder without one is somebody else's.
func (f *folders) keep(key string, record []byte) error {
	for _, kind := range []string{"w", "r", "s"} {
		if err := os.MkdirAll(filepath.Join(f.config.Root, kind), 0o700); err != nil {
			return err
		}
	}
	tmp, err := os.CreateTemp(f.config.Root, "record-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(record)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), f.at("r", key)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	r, err := f.record(key)
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(f.at("w", key), r.Sub), 0o700)
}

func (f *folders) Attach(_ context.Context, key string) (sdk.Workspace, error) {
	if err := errors.Join(f.checkName(key), f.checkOurs(key)); err != nil {
		return nil, err
	}
	r, err := f.record(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", key, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Rename(f.at("s", key), f.at("w", key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dir := filepath.Join(f.at("w", key), r.Sub)
	ws, err := posix.Open(posix.Config{Dir: dir, ID: key, Env: map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir, "LANG": "C.UTF-8",
	}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", key, workspace.ErrUnavailable)
	}
	return ws, err
}

func (f *folders) Destroy(_ context.Context, key string) error {
	if err := errors.Join(f.checkName(key), f.checkOurs(key)); err != nil {
		return err
	}
	err := os.RemoveAll(f.at("w", key))
	for errors.Is(err, fs.ErrExist) { // a command that is just being stopped still writes
		err = os.RemoveAll(f.at("w", key))
	}
	if err = errors.Join(err, os.RemoveAll(f.at("s", key))); err != nil {
		return err
	}
	if err := os.Remove(f.at("r", key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folders) List(context.Context, workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		entries, err := os.ReadDir(filepath.Join(f.config.Root, "r"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(sdk.Info{}, err)
			return
		}
		for _, entry := range entries {
			r, err := f.record(entry.Name())
			if errors.Is(err, fs.ErrNotExist) { // destroyed meanwhile
				continue
			}
			if !yield(sdk.Info{ID: entry.Name(), Name: r.Name, State: "there"}, err) || err != nil {
				return
			}
		}
	}
}

// with is the configuration as a host gets it.
func (c folderConfig) with(change func(*folderConfig)) map[string]any {
	c.Env = maps.Clone(c.Env)
	if change != nil {
		change(&c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		panic(err)
	}
	return m
}
