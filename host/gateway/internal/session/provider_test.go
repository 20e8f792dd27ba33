package session_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// folderConfig configures the provider of these tests. A workspace is a folder of
// root; one that is stopped has a mark beside it.
type folderConfig struct {
	Root string            `json:"root"`
	Env  map[string]string `json:"env,omitempty" berth:"per_workspace"`
}

// folders is what a test sees of the provider, and does to it.
type folders struct {
	root      string
	permanent bool // has nothing to stop
	readable  bool // can read the files of what is stopped
	creates   atomic.Int64
	attaches  atomic.Int64
	stops     atomic.Int64
	destroys  atomic.Int64

	mu      sync.Mutex
	onMake  func(ctx context.Context, id string) error // before the folder is made
	onMade  func(ctx context.Context, id string) error // after
	onStop  func(ctx context.Context, id string) error
	onStart func(ctx context.Context, id string) error
	onEnd   func(ctx context.Context, id string) error
}

func newFolders(t testing.TB) *folders { return &folders{root: t.TempDir()} }

// set changes what the provider does.
func (f *folders) set(change func(*folders)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *folders) hook(which func(*folders) func(context.Context, string) error, ctx context.Context, id string) error {
	f.mu.Lock()
	hook := which(f)
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, id)
}

// workspaces are the ids of those that are there.
func (f *folders) workspaces(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(f.root)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

func (f *folders) stopped(id string) bool {
	_, err := os.Stat(filepath.Join(f.root, id+".stopped"))
	return err == nil
}

// resident is how many run.
func (f *folders) resident(t testing.TB) int {
	n := 0
	for _, id := range f.workspaces(t) {
		if !f.stopped(id) {
			n++
		}
	}
	return n
}

// host serves the provider to one gateway.
func (f *folders) host(t testing.TB) *host.Host {
	t.Helper()
	h := f.newHost(t.TempDir())
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}

func (f *folders) newHost(dataDir string) *host.Host {
	var plugin host.Registrar = folderPlugin(func(c folderConfig) sdk.Provider { return &folderProvider{f, c} })
	if f.permanent {
		plugin = folderPlugin(func(c folderConfig) sdk.Provider { return permanent{&folderProvider{f, c}} })
	}
	if f.readable {
		plugin = folderPlugin(func(c folderConfig) sdk.Provider { return reader{&folderProvider{f, c}} })
	}
	h, err := host.New(host.Config{DataDir: dataDir, Providers: map[string]host.Provider{
		"folder": {InProcess: plugin, Config: map[string]any{"root": f.root}},
	}})
	if err != nil {
		panic(err)
	}
	return h
}

func folderPlugin(provider func(folderConfig) sdk.Provider) sdk.Plugin[folderConfig] {
	return sdk.Plugin[folderConfig]{
		Name: "folder", Version: "test", Workspace: (*posix.Workspace)(nil),
		New: func(_ context.Context, c folderConfig, _ sdk.Env) (sdk.Provider, error) { return provider(c), nil },
	}
}

type folderProvider struct {
	*folders
	folderConfig
}

// permanent hides Stop.
type permanent struct{ sdk.Provider }

// reader reads stored files.
type reader struct{ *folderProvider }

func (r reader) OpenStored(_ context.Context, id string) (sdk.Stored, error) {
	ws, err := posix.Open(posix.Config{Dir: filepath.Join(r.Root, id), ID: id})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s was removed: %w", id, workspace.ErrUnavailable)
	}
	return ws, err
}

func (p *folderProvider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	id := req.Key()
	if err := p.hook(func(f *folders) func(context.Context, string) error { return f.onMake }, ctx, id); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(p.Root, id), 0o755); err == nil {
		p.creates.Add(1)
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := p.hook(func(f *folders) func(context.Context, string) error { return f.onMade }, ctx, id); err != nil {
		return nil, err
	}
	return p.Attach(ctx, id)
}

func (p *folderProvider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	p.attaches.Add(1)
	if err := p.hook(func(f *folders) func(context.Context, string) error { return f.onStart }, ctx, id); err != nil {
		return nil, err
	}
	dir := filepath.Join(p.Root, id)
	ws, err := posix.Open(posix.Config{Dir: dir, ID: id, Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": dir}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s was removed: %w", id, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return ws, errorsIsNot(os.Remove(dir+".stopped"), fs.ErrNotExist)
}

func (p *folderProvider) Stop(ctx context.Context, id string) error {
	if err := p.hook(func(f *folders) func(context.Context, string) error { return f.onStop }, ctx, id); err != nil {
		return err
	}
	dir := filepath.Join(p.Root, id)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("workspace %s was removed: %w", id, workspace.ErrUnavailable)
	}
	p.stops.Add(1)
	return os.WriteFile(dir+".stopped", nil, 0o600)
}

func (p *folderProvider) Destroy(ctx context.Context, id string) error {
	if err := p.hook(func(f *folders) func(context.Context, string) error { return f.onEnd }, ctx, id); err != nil {
		return err
	}
	if strings.ContainsAny(id, "/") {
		return workspace.ErrInvalid
	}
	p.destroys.Add(1)
	dir := filepath.Join(p.Root, id)
	return errors.Join(posix.RemoveTree(dir), errorsIsNot(os.Remove(dir+".stopped"), fs.ErrNotExist))
}

func errorsIsNot(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// eventually waits for something on a machine that has much else to do.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
