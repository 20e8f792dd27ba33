package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/plugin/sdk/guest/serve"
	"github.com/berth-dev/berth/shared/workspace"
)

// durablePlugin is folders with a guest in each, which outlives the plugin: its
// engine is the test itself.
const durablePlugin = "durable"

type durableConfig struct {
	Root string `json:"root"`
	// Engine is the socket of what starts guests.
	Engine string `json:"engine"`
}

func newDurablePlugin() sdk.Plugin[durableConfig] {
	return sdk.Plugin[durableConfig]{
		Name: durablePlugin, Version: "test",
		New: func(_ context.Context, config durableConfig, _ sdk.Env) (sdk.Provider, error) {
			return &durables{folders: folders{folderConfig{Root: config.Root}}, engine: config.Engine}, nil
		},
	}
}

func serveDurable() { sdk.Serve(newDurablePlugin()) }

type durables struct {
	folders
	engine string
}

// guested is a folder as its guest shows it.
type guested struct {
	*guest.Workspace
	id, incarnation string
}

func (g guested) ID() string          { return g.id }
func (g guested) Incarnation() string { return g.incarnation }

func (d *durables) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := d.checkOurs(req.Key()); err != nil {
		return nil, err
	}
	if err := d.keep(req.Key(), []byte(`{}`)); err != nil {
		return nil, err
	}
	return d.Attach(ctx, req.Key())
}

func (d *durables) Attach(ctx context.Context, key string) (sdk.Workspace, error) {
	plain, err := d.folders.Attach(ctx, key)
	if err != nil {
		return nil, err
	}
	incarnation := plain.Incarnation()
	if err := plain.(io.Closer).Close(); err != nil {
		return nil, err
	}
	socket, err := d.order("start", key)
	if err != nil {
		return nil, err
	}
	ws, err := guest.Open(ctx, guest.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) },
		Explain: func(context.Context, error) error {
			if _, err := d.record(key); err != nil {
				return fmt.Errorf("%s was destroyed: %w", key, workspace.ErrUnavailable)
			}
			return nil
		},
		Version: "test",
	})
	if err != nil {
		return nil, err
	}
	return guested{ws, key, incarnation}, nil
}

func (d *durables) Destroy(ctx context.Context, key string) error {
	if err := d.checkOurs(key); err != nil {
		return err
	}
	if err := os.Remove(d.at("r", key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := d.order("stop", key); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(d.at("w", key)), d.folders.Destroy(ctx, key))
}

// order asks the engine for something.
func (d *durables) order(what, key string) (string, error) {
	conn, err := net.Dial("unix", d.engine)
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

// engine runs guests in the test's own process.
type engine struct {
	root   string // of the folders
	dir    string // of the sockets: short
	ctx    context.Context
	socket string
	work   sync.WaitGroup

	mu     sync.Mutex
	guests map[string]*running
}

type running struct {
	socket string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func startEngine(t testing.TB, root string) *engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "e")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &engine{root: root, dir: dir, ctx: ctx, socket: filepath.Join(dir, "engine"), guests: map[string]*running{}}
	listener, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	e.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.work.Go(func() { e.answer(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		e.work.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *engine) answer(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	what, key, _ := strings.Cut(strings.TrimSpace(line), " ")
	var answer string
	switch what {
	case "start":
		answer, err = e.start(key)
	case "stop":
		err = e.stop(key)
	}
	if err != nil {
		fmt.Fprintf(conn, "error %v", err)
		return
	}
	fmt.Fprintf(conn, "ok %s", answer)
}

// guestWait is how long a guest may take to serve its socket.
const guestWait = 30 * time.Second

func (e *engine) start(key string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.guests[key]; g != nil {
		return g.socket, nil
	}
	ctx, cancel := context.WithCancel(e.ctx)
	g := &running{socket: filepath.Join(e.dir, fmt.Sprint(len(e.guests)), "s"), cancel: cancel, done: make(chan struct{})}
	dir := filepath.Join(e.root, "w", key)
	e.work.Go(func() {
		defer close(g.done)
		g.err = serve.Run(ctx, serve.Config{
			Dir: dir, Socket: g.socket, Version: "test",
			Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir, "LANG": "C.UTF-8"},
		})
	})
	for deadline := time.Now().Add(guestWait); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(g.socket); err == nil {
			e.guests[key] = g
			return g.socket, nil
		}
		select {
		case <-g.done:
			cancel()
			return "", g.err
		default:
		}
		if time.Now().After(deadline) {
			cancel()
			return "", errors.New("the guest does not serve its socket")
		}
	}
}

func (e *engine) stop(key string) error {
	e.mu.Lock()
	g := e.guests[key]
	e.mu.Unlock()
	if g == nil {
		return nil
	}
	g.cancel()
	<-g.done
	return g.err
}

// durableBed returns options over a provider whose commands outlive its plugin.
func durableBed(t testing.TB) Options {
	t.Helper()
	root := t.TempDir()
	e := startEngine(t, root)
	open := func(t testing.TB) *host.Host {
		return newHost(t, host.Config{
			PluginDirs: []string{pluginDir(t, durablePlugin)},
			Providers:  map[string]host.Provider{durablePlugin: {Config: map[string]any{"root": root, "engine": e.socket}}},
		})
	}
	h := open(t)
	return Options{
		Host: h, Provider: durablePlugin, Probe: probeBinary(t), Started: started,
		OtherHost: func(t testing.TB) workspace.Host { return open(t) },
		Restart:   func(t testing.TB) { kill(t, h) },
	}
}

// TestDurable is over commands that outlive their plugin.
func TestDurable(t *testing.T) { wantKept(t, Test(t, durableBed(t))) }
