package swap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/durable"
)

// The plugins, which are all this test's own binary.
const (
	plain   = "plain"      // folders; its runs end with it
	lasting = durable.Name // folders with guests; its runs go on
)

// What a version of a plugin is like: the end of its file says so.
const (
	versionA  = "a"
	versionB  = "b"
	panics    = "panics"    // in its configuration
	picky     = "picky"     // its schema wants a key that nobody gave
	hangs     = "hangs"     // in its configuration
	exits     = "exits"     // before it serves
	mayfly    = "mayfly"    // the first process of it ends a moment after a workspace is asked for
	blind     = "blind"     // finds no workspace
	temporary = "temporary" // its workspaces end with it
)

var versions = []string{versionA, versionB, panics, picky, hangs, exits, mayfly, blind, temporary}

// tail comes before the version's name at the end of a binary.
const tail = "\nberth-test-version="

// binaries are a file for each version, made before anything else runs: a process
// that is being forked would hold one open that is still written.
var binaries string

func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(wire.Handshake().MagicCookieKey) != "" {
		serve()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "swap")
		if err == nil {
			defer os.RemoveAll(dir)
			binaries, err = dir, makeBinaries(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if status := m.Run(); status != 0 {
			return status
		}
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}())
}

func makeBinaries(dir string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, version := range versions {
		if err := os.WriteFile(filepath.Join(dir, version), append(self, tail+version...), 0o755); err != nil { //nolint:gosec // it is to be executed
			return err
		}
	}
	return nil
}

// ownVersion is what this process's binary was made as.
func ownVersion() string {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	end := make([]byte, 64)
	if _, err := file.Seek(-int64(len(end)), io.SeekEnd); err != nil {
		panic(err)
	}
	if _, err := io.ReadFull(file, end); err != nil {
		panic(err)
	}
	_, version, _ := bytes.Cut(end, []byte(tail))
	return string(version)
}

// serve is the main function of the plugins.
func serve() {
	version := ownVersion()
	if version == exits {
		fmt.Fprintln(os.Stderr, "this version is of no use")
		os.Exit(7)
	}
	switch filepath.Base(os.Args[0]) {
	case wire.BinaryPrefix + lasting:
		inner := durable.Plugin()
		sdk.Serve(sdk.Plugin[durable.Config]{Name: lasting, Version: version, New: func(ctx context.Context, c durable.Config, env sdk.Env) (sdk.Provider, error) {
			p, err := inner.New(ctx, c, env)
			if err != nil {
				return nil, err
			}
			return configure(version, c.Root, p, env.Logger)
		}})
	case wire.BinaryPrefix + plain:
		if version == picky {
			sdk.Serve(sdk.Plugin[pickyConfig]{Name: plain, Version: version, New: func(context.Context, pickyConfig, sdk.Env) (sdk.Provider, error) { panic("not reached") }})
		}
		sdk.Serve(sdk.Plugin[config]{Name: plain, Version: version, New: func(_ context.Context, c config, env sdk.Env) (sdk.Provider, error) {
			env.Logger.Info("configured", "password", c.Password)
			return configure(version, c.Root, folders(c.Root), env.Logger)
		}})
	}
	panic(os.Args[0])
}

type config struct {
	Root     string `json:"root" berth:"path"`
	Password string `json:"password,omitempty" berth:"secret"`
}

type pickyConfig struct {
	Root string `json:"root" berth:"path"`
	Must string `json:"must" jsonschema:"required"`
}

// configure makes a provider as its version is.
func configure(version, root string, p sdk.Provider, log hclog.Logger) (sdk.Provider, error) {
	switch version {
	case panics:
		panic("this version panics when it is configured")
	case hangs:
		select {}
	}
	g := &gated{Provider: p, gates: gatesOf(root), version: version, log: log}
	if version == mayfly && os.Mkdir(filepath.Join(root, ".mayfly"), 0o755) == nil {
		g.dies = sync.OnceFunc(func() { time.AfterFunc(50*time.Millisecond, func() { os.Exit(9) }) })
	}
	return g, nil
}

// gatesOf is a folder in which a create leaves word, and waits for one, if it is
// there.
func gatesOf(root string) string { return root + ".gates" }

// gated is a provider whose creates take as long as a test wants.
type gated struct {
	sdk.Provider
	gates   string
	version string
	log     hclog.Logger
	dies    func() // nil: it does not
}

func (g *gated) Ephemeral() bool { return g.version == temporary }

func (g *gated) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.WriteFile(filepath.Join(g.gates, req.Key()+".begun"), nil, 0o600); err == nil {
		for !exists(filepath.Join(g.gates, req.Key()+".go")) {
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		g.log.Trace("let through", "version", g.version)
	}
	return g.Provider.Create(ctx, req)
}

func (g *gated) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	if g.version == blind {
		return nil, fmt.Errorf("workspace %s: this version sees none: %w", id, workspace.ErrUnavailable)
	}
	if g.dies != nil {
		g.dies() // it serves by now, however slow the machine is
	}
	return g.Provider.Attach(ctx, id)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// folders is a provider whose workspaces are folders below it.
type folders string

func (f folders) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.MkdirAll(filepath.Join(string(f), req.Key()), 0o755); err != nil {
		return nil, err
	}
	return f.Attach(ctx, req.Key())
}

func (f folders) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	ws, err := posix.Open(posix.Config{Dir: filepath.Join(string(f), id), ID: id, Env: map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8",
	}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s: %w", id, workspace.ErrUnavailable)
	}
	return ws, err
}

func (f folders) Destroy(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(string(f), id))
}
