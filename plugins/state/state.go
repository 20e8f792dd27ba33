package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// DefaultMaxTotalSize keeps a workspace from filling the disk unless its
	// operator says so.
	DefaultMaxTotalSize Size = 10 << 30
	// DefaultMaxTotalSizeInMemory is that of store memory.
	DefaultMaxTotalSizeInMemory Size = 1 << 30
)

// Config is the provider's configuration.
type Config struct {
	// Store is where the documents are: file:PATH or memory.
	Store string `json:"store,omitempty" jsonschema:"pattern=^(memory|file:.+)$,description=Where workspaces are kept: file:PATH for an SQLite file (a relative path starts at the configuration's folder) or memory for workspaces that end with the plugin's process. By default state.db in the provider's data folder."`
	// MaxFileSize is the most that one file may hold.
	MaxFileSize *Size `json:"max_file_size,omitempty" jsonschema:"description=The most that one file may hold. 0 or none given: no limit of its own." berth:"per_workspace"`
	// MaxTotalSize is the most that all files of a workspace may hold.
	MaxTotalSize *Size `json:"max_total_size,omitempty" jsonschema:"description=The most that all files of one workspace may hold together. 0: no limit. By default 10GiB or 1GiB in memory." berth:"per_workspace"`
}

const (
	storeMemory     = "memory"
	storeFilePrefix = "file:"
	defaultFile     = "state.db"
)

// Plugin is the plugin of this package, to be served.
func Plugin(version string) sdk.Plugin[Config] {
	return sdk.Plugin[Config]{
		Name:      "state",
		Version:   version,
		New:       New,
		Workspace: (*document)(nil),
	}
}

// New opens the store, which it makes if there is none.
func New(ctx context.Context, config Config, env sdk.Env) (sdk.Provider, error) {
	return open(ctx, config, env, defaultTiming)
}

func open(ctx context.Context, config Config, env sdk.Env, timing timing) (*provider, error) {
	var st store
	path, err := storePath(config.Store, env.DataDir)
	if err != nil {
		return nil, err
	}
	if path == "" {
		st, err = openMemory(ctx)
	} else {
		st, err = openFile(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	p := &provider{config: config, name: env.Provider, store: st, memory: path == ""}
	if p.sweeper, err = startSweeper(ctx, st, env.Logger, timing); err != nil {
		return nil, joinClose(err, st)
	}
	return p, nil
}

// storePath returns the file to use, or "" for memory.
func storePath(spec, dataDir string) (string, error) {
	switch {
	case spec == storeMemory:
		return "", nil
	case spec == "" && dataDir == "":
		return "", fmt.Errorf("store: there is no data folder for the default: give file:PATH or memory: %w", workspace.ErrInvalid)
	case spec == "":
		return filepath.Abs(filepath.Join(dataDir, defaultFile))
	case !strings.HasPrefix(spec, storeFilePrefix) || spec == storeFilePrefix:
		return "", fmt.Errorf("store %q: want file:PATH or memory: %w", spec, workspace.ErrInvalid)
	}
	path := strings.TrimPrefix(spec, storeFilePrefix)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("store %q: %w", spec, err)
		}
		path = filepath.Join(home, rest)
	}
	// The working directory is the configuration's folder.
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("store %q: %w", spec, err)
	}
	return abs, nil
}

// limits are those of a workspace that is made with this configuration.
func (c Config) limits(memory bool) limits {
	total := DefaultMaxTotalSize
	if memory {
		total = DefaultMaxTotalSizeInMemory
	}
	if c.MaxTotalSize != nil {
		total = *c.MaxTotalSize
	}
	l := limits{total: int64(total)}
	if c.MaxFileSize != nil {
		l.file = int64(*c.MaxFileSize)
	}
	return l
}
