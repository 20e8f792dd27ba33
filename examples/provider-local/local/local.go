// Package local is a provider whose workspaces are folders of this machine. It
// is no sandbox: commands run as the user that runs the plugin, and reach
// whatever that user reaches.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// Config is the provider's configuration.
type Config struct {
	Root string            `json:"root,omitempty" berth:"path" jsonschema:"description=Folder that holds a folder for each workspace. Default: one of the provider's own in the user's data folder."`
	Env  map[string]string `json:"env,omitempty" berth:"per_workspace" jsonschema:"description=Environment variables of every command."`
}

// Plugin is the plugin, of the given version.
func Plugin(version string) sdk.Plugin[Config] {
	return sdk.Plugin[Config]{Name: "local", Version: version, New: newProvider, Workspace: (*posix.Workspace)(nil)}
}

// provider keeps each workspace in root/ID: its files in a folder of that, and
// beside them its record.
type provider struct{ root, name string }

func newProvider(_ context.Context, config Config, env sdk.Env) (sdk.Provider, error) {
	p := &provider{root: cmp.Or(config.Root, filepath.Join(env.DataDir, "workspaces")), name: env.Provider}
	if err := os.MkdirAll(p.root, 0o755); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return p, p.sweep()
}

// Announce tells that workspaces have labels.
func (p *provider) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureLabels}
}

// Create makes a workspace, or opens the one that its key has made before.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if _, err := os.Lstat(filepath.Join(p.root, req.Key())); errors.Is(err, fs.ErrNotExist) {
		if err := p.place(req); err != nil {
			return nil, err
		}
	}
	return p.Attach(ctx, req.Key())
}

// Attach opens a workspace that is there.
func (p *provider) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	if _, err := p.record(id); err != nil {
		return nil, err
	}
	dir := filepath.Join(p.root, id, filesDir)
	ws, err := posix.Open(posix.Config{Dir: dir, ID: id, Env: map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir, "LANG": "C.UTF-8",
	}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s: its files were removed: %w", id, workspace.ErrUnavailable)
	}
	return ws, err
}

// Destroy puts a workspace out of reach in one step, and then removes it.
func (p *provider) Destroy(_ context.Context, id string) error {
	gone := filepath.Join(p.root, asidePrefix+rand.Text())
	_, err := p.record(id)
	if err == nil {
		err = os.Rename(filepath.Join(p.root, id), gone)
	}
	if errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, fs.ErrNotExist) { // another Destroy was first
		return nil
	}
	return errors.Join(err, posix.RemoveTree(gone))
}

// Names in a workspace's folder, and the prefix, which no id has, of folders
// that are not in their place yet, or no more.
const filesDir, recordFile, asidePrefix = "files", "workspace.json", ".aside-"

// abandoned is the age at which a folder aside was left by a plugin that was
// killed: making or removing one takes seconds.
const abandoned = time.Hour

type record struct {
	Provider string            `json:"provider"`
	Name     string            `json:"name,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Created  time.Time         `json:"created"`
}

// record reads what was noted when a workspace was made. Whatever else has that
// name is not ours to touch (contract L4, L6).
func (p *provider) record(id string) (r record, err error) {
	if err := workspace.ValidateName(id); err != nil { // so it is no path either
		return r, err
	}
	home := filepath.Join(p.root, id)
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if _, gone := os.Lstat(home); errors.Is(gone, fs.ErrNotExist) {
		return r, fmt.Errorf("workspace %s was destroyed: %w", id, workspace.ErrUnavailable)
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("%s was not made by this provider: its record: %w (%s)", home, workspace.ErrInvalid, err.Error())
	}
	if r.Provider != p.name {
		return r, fmt.Errorf("%s was made by the provider %q: %w", home, r.Provider, workspace.ErrInvalid)
	}
	return r, nil
}

// place makes a workspace aside and puts it in its place in one step. If another
// process was first, its workspace is the one.
func (p *provider) place(req sdk.CreateRequest) error {
	data, err := json.Marshal(record{Provider: p.name, Name: req.Name, Labels: req.Labels, Created: time.Now()})
	if err != nil {
		return err
	}
	aside := filepath.Join(p.root, asidePrefix+rand.Text())
	defer os.RemoveAll(aside)
	err = errors.Join(os.MkdirAll(filepath.Join(aside, filesDir), 0o755), os.WriteFile(filepath.Join(aside, recordFile), data, 0o600))
	if err != nil {
		return err
	}
	err = os.Rename(aside, filepath.Join(p.root, req.Key()))
	if errors.Is(err, fs.ErrExist) { // also what a folder that is not empty says
		return nil
	}
	return err
}

// List tells what this provider made.
func (p *provider) List(context.Context, workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		entries, err := os.ReadDir(p.root)
		if err != nil {
			yield(sdk.Info{}, err)
		}
		for _, entry := range entries {
			r, err := p.record(entry.Name()) // else another's, or not a workspace
			if err == nil && !yield(sdk.Info{ID: entry.Name(), Name: r.Name, Labels: r.Labels, Created: r.Created, State: "ready"}, nil) {
				return
			}
		}
	}
}

// sweep removes what killed plugins have left half made or half removed.
func (p *provider) sweep() error {
	entries, err := os.ReadDir(p.root)
	for _, entry := range entries {
		info, statErr := entry.Info()
		if strings.HasPrefix(entry.Name(), asidePrefix) && statErr == nil && time.Since(info.ModTime()) > abandoned {
			err = errors.Join(err, posix.RemoveTree(filepath.Join(p.root, entry.Name())))
		}
	}
	return err
}
