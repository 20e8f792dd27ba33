package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/workspace"
)

// Name is the plugin's.
const Name = "durable"

// Config is the provider's configuration, as [Engine.Config] gives it.
type Config struct {
	// Root holds a folder for each workspace.
	Root string `json:"root"`
	// Engine is the socket of what runs guests.
	Engine string `json:"engine"`
}

// Plugin is the plugin.
func Plugin() sdk.Plugin[Config] {
	return sdk.Plugin[Config]{
		Name: Name, Version: "test",
		New: func(_ context.Context, config Config, _ sdk.Env) (sdk.Provider, error) { return &provider{config}, nil },
	}
}

type provider struct{ config Config }

// guested is a folder as its guest shows it.
type guested struct {
	*guest.Workspace
	id, incarnation string
}

// ID is the folder's name.
func (g guested) ID() string { return g.id }

// Incarnation changes with the folder.
func (g guested) Incarnation() string { return g.incarnation }

func (p *provider) at(key string) string { return filepath.Join(p.config.Root, key) }

// Create makes the folder of a key, or finds it.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.MkdirAll(p.at(req.Key()), 0o700); err != nil {
		return nil, err
	}
	return p.Attach(ctx, req.Key())
}

// Attach has the engine start the guest, if need be, and connects to it.
func (p *provider) Attach(ctx context.Context, key string) (sdk.Workspace, error) {
	info, err := os.Stat(p.at(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.gone(key)
	}
	if err != nil {
		return nil, err
	}
	socket, err := p.order("start", key)
	if err != nil {
		return nil, err
	}
	ws, err := guest.Open(ctx, guest.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) },
		Explain: func(context.Context, error) error {
			if _, err := os.Stat(p.at(key)); errors.Is(err, fs.ErrNotExist) {
				return p.gone(key)
			}
			return nil
		},
		Version: "test",
	})
	if err != nil {
		return nil, err
	}
	return guested{ws, key, strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)}, nil
}

func (p *provider) gone(key string) error {
	return fmt.Errorf("workspace %s is not there: %w", key, workspace.ErrUnavailable)
}

// Destroy puts the folder out of reach, ends the guest, and removes it.
func (p *provider) Destroy(_ context.Context, key string) error {
	if err := os.MkdirAll(p.config.Root, 0o700); err != nil {
		return err
	}
	aside, err := os.MkdirTemp(p.config.Root, asidePrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(p.at(key), filepath.Join(aside, "w")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := p.order("stop", key); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// asidePrefix begins no workspace's id.
const asidePrefix = ".gone-"

// List tells the folders.
func (p *provider) List(context.Context, workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		entries, err := os.ReadDir(p.config.Root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			yield(sdk.Info{}, err)
			return
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), asidePrefix) && !yield(sdk.Info{ID: entry.Name(), State: "running"}, nil) {
				return
			}
		}
	}
}

// order asks the engine for something.
func (p *provider) order(what, key string) (string, error) {
	conn, err := net.Dial("unix", p.config.Engine)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s\n", what, key); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	socket, ok := strings.CutPrefix(string(answer), "ok ")
	if !ok {
		return "", fmt.Errorf("engine: %s %s: %q", what, key, answer)
	}
	return socket, nil
}
