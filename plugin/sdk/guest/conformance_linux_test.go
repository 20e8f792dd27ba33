package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/workspace"
)

// The provider of these tests stands for one of containers: a workspace is a
// folder with a guest's processes, which are reached by berth-guest connect alone.
const yardProvider = "yard"

type yardConfig struct {
	Env map[string]string `json:"env,omitempty" berth:"per_workspace"`
	// Sub is the folder in which a workspace begins, fixed at create.
	Sub string `json:"sub,omitempty" berth:"per_workspace"`
	// Name is the only workspace, if given.
	Name string `json:"name,omitempty"`
}

// yard is the engine: all providers of a test share it.
type yard struct {
	t      testing.TB
	binary string
	root   string

	mu       sync.Mutex
	machines map[string]*container
	fail     bool
	slow     time.Duration
}

// container is one workspace. Its incarnation changes when it is replaced.
type container struct {
	machine     *machine
	running     bool
	incarnation string
	name        string
	ours        bool
	life        context.Context //nolint:containedctx // ends with the container
	end         context.CancelFunc
}

func newYard(t testing.TB) *yard {
	t.Helper()
	root, err := os.MkdirTemp("", "yard") //nolint:usetesting // short: a socket's path is
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, binary: guestBinary(t), root: root, machines: map[string]*container{}}
	t.Cleanup(func() {
		for key := range maps.Clone(y.machines) {
			y.remove(key)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return y
}

func (y *yard) plugin() sdk.Plugin[yardConfig] {
	return sdk.Plugin[yardConfig]{
		Name: yardProvider, Version: "test", Workspace: (*boxed)(nil),
		New: func(_ context.Context, config yardConfig, _ sdk.Env) (sdk.Provider, error) {
			return &yardClient{y, config}, nil
		},
	}
}

// put makes a container, if there is none of that key, and starts it.
func (y *yard) put(key, name, sub string, ours bool) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.machines[key] != nil {
		return nil
	}
	id := newRunID()
	base := filepath.Join(y.root, id)
	c := &container{
		machine: &machine{
			binary: y.binary, dir: filepath.Join(base, "w", sub), socket: filepath.Join(base, "s", "s"),
			env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + base},
		},
		incarnation: id, name: name, ours: ours,
	}
	if err := os.MkdirAll(c.machine.dir, 0o755); err != nil {
		return err
	}
	y.machines[key] = c
	y.start(c)
	return nil
}

func (y *yard) start(c *container) {
	if !c.running {
		c.life, c.end = context.WithCancel(context.Background())
		c.machine.start(y.t, "init")
		c.running = true
	}
}

func (y *yard) stop(key string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if c := y.machines[key]; c != nil && c.running {
		c.running = false
		c.machine.stop(y.t)
		c.end()
	}
}

func (y *yard) remove(key string) {
	y.stop(key)
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.machines, key)
}

func (y *yard) get(key string) *container {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.machines[key]
}

// yardClient is the provider.
type yardClient struct {
	yard   *yard
	config yardConfig
}

func (c *yardClient) check(key string) error {
	if c.config.Name != "" && key != c.config.Name {
		return fmt.Errorf("%s: this provider is configured with the name %s: %w", key, c.config.Name, workspace.ErrInvalid)
	}
	if m := c.yard.get(key); m != nil && !m.ours && c.config.Name == "" {
		return fmt.Errorf("%s was made by somebody else: %w", key, workspace.ErrInvalid)
	}
	return nil
}

func (c *yardClient) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	config, err := sdk.Override(c.config, req.Overrides)
	if err != nil {
		return nil, err
	}
	key := req.Key()
	if c.config.Name != "" && req.Name == "" {
		key = c.config.Name
	}
	if err := c.check(key); err != nil {
		return nil, err
	}
	c.yard.mu.Lock()
	fail, slow := c.yard.fail, c.yard.slow
	c.yard.mu.Unlock()
	if fail {
		return nil, errors.New("told to fail")
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := c.yard.put(key, req.Name, config.Sub, true); err != nil {
		return nil, err
	}
	return c.Attach(ctx, key)
}

func (c *yardClient) Attach(ctx context.Context, key string) (sdk.Workspace, error) {
	if err := c.check(key); err != nil {
		return nil, err
	}
	c.yard.mu.Lock()
	m := c.yard.machines[key]
	if m == nil {
		c.yard.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", key, workspace.ErrUnavailable)
	}
	c.yard.start(m)
	life := m.life
	c.yard.mu.Unlock()
	gone := func(err error) error {
		if now := c.yard.get(key); now != m {
			return fmt.Errorf("%s is gone: %w", key, workspace.ErrUnavailable)
		}
		return fmt.Errorf("%w: %w", err, workspace.ErrTransient)
	}
	ws, err := guest.Open(ctx, guest.Options{
		Dial:    func(ctx context.Context) (net.Conn, error) { return m.machine.dial(ctx) },
		Explain: func(_ context.Context, err error) error { return gone(err) },
		Version: "test",
	})
	if err != nil {
		return nil, err
	}
	return &boxed{Workspace: ws, id: key, incarnation: m.incarnation, life: life, gone: gone}, nil
}

func (c *yardClient) Destroy(_ context.Context, key string) error {
	if err := c.check(key); err != nil {
		return err
	}
	c.yard.remove(key)
	return nil
}

func (c *yardClient) List(context.Context, workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		c.yard.mu.Lock()
		all := maps.Clone(c.yard.machines)
		c.yard.mu.Unlock()
		for key, m := range all {
			if m.ours && !yield(sdk.Info{ID: key, Name: m.name, State: "there"}, nil) {
				return
			}
		}
	}
}

// boxed is a workspace as a provider of containers has it.
type boxed struct {
	*guest.Workspace

	id, incarnation string
	life            context.Context //nolint:containedctx // the container's
	gone            func(error) error
}

func (b *boxed) ID() string          { return b.id }
func (b *boxed) Incarnation() string { return b.incarnation }

// Watch notices the container's end.
func (b *boxed) Watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.life.Done():
		return fmt.Errorf("%s ended: %w", b.id, workspace.ErrUnavailable)
	}
}

// buildProbe builds the suite's own program once.
var buildProbe = sync.OnceValues(func() (string, error) {
	if _, err := buildGuest(); err != nil { // makes the folder
		return "", err
	}
	return conformance.BuildProbe(context.Background(), sharedDir(), "", "")
})

func yardBed(t testing.TB) conformance.Options {
	t.Helper()
	probe, err := buildProbe()
	if err != nil {
		t.Fatal(err)
	}
	y := newYard(t)
	env := map[string]string{"LANG": "de_DE.UTF-8", "CONFORMANCE_PROVIDER": "a  b\n'c'"}
	open := func(t testing.TB, change func(*yardConfig)) *host.Host {
		t.Helper()
		config := yardConfig{Env: env}
		if change != nil {
			change(&config)
		}
		var m map[string]any
		b, err := json.Marshal(config)
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := host.New(host.Config{
			DataDir:   t.TempDir(),
			Providers: map[string]host.Provider{yardProvider: {InProcess: y.plugin(), Config: m}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		return h
	}
	return conformance.Options{
		Host: open(t, nil), Provider: yardProvider, Probe: probe, Env: env,
		OtherHost: func(t testing.TB) workspace.Host { return open(t, nil) },
		Started: func(h workspace.Host) bool {
			for _, p := range h.(*host.Host).Providers() {
				if p.State != "stopped" {
					return true
				}
			}
			return false
		},
		Stop: func(_ testing.TB, ref workspace.Ref) { y.stop(ref.ID) },
		Reconfigured: func(t testing.TB) workspace.Host {
			return open(t, func(c *yardConfig) { c.Sub = "elsewhere" })
		},
		Replace: func(t testing.TB, ref workspace.Ref) {
			y.remove(ref.ID)
			if err := y.put(ref.ID, "", "", true); err != nil {
				t.Fatal(err)
			}
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			name := "other-" + newRunID()
			if err := y.put(name, "", "", false); err != nil {
				t.Fatal(err)
			}
			return name, workspace.Ref{Provider: yardProvider, ID: name}
		},
		Configured: func(t testing.TB) conformance.Configured {
			return conformance.Configured{Host: open(t, func(c *yardConfig) { c.Name = "the-one" }), Provider: yardProvider, Name: "the-one"}
		},
		FailCreates: func(testing.TB) func() {
			set := func(fail bool) {
				y.mu.Lock()
				defer y.mu.Unlock()
				y.fail = fail
			}
			set(true)
			return func() { set(false) }
		},
		SlowCreates: func(t testing.TB, d time.Duration) {
			set := func(d time.Duration) {
				y.mu.Lock()
				defer y.mu.Unlock()
				y.slow = d
			}
			set(d)
			t.Cleanup(func() { set(0) })
		},
	}
}

// TestConformance has every rule of the contract kept through a host, the SDK's
// relay, berth-guest connect and a guest.
func TestConformance(t *testing.T) {
	r := conformance.Test(t, yardBed(t))
	if r.Count(conformance.Checked) == 0 || r.Count(conformance.Failed)+r.Count(conformance.Deviates) > 0 {
		t.Errorf("%d checked, %d failed, %d deviate", r.Count(conformance.Checked), r.Count(conformance.Failed), r.Count(conformance.Deviates))
	}
}
