package conformance

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository is the root, seen from this package.
const repository = "../.."

// build builds a plugin as `make build` does.
func build(t *testing.T, module, pkg, plugin string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, plugin), pkg)
	cmd.Dir = filepath.Join(repository, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", plugin, err, out)
	}
	return dir
}

// bed is a configured provider on real plugin processes.
type bed struct {
	provider  string
	pluginDir string
	dataDir   string
	providers map[string]host.Provider
	host      *host.Host
}

func newBed(t *testing.T, provider, pluginDir string, providers map[string]host.Provider) *bed {
	t.Helper()
	b := &bed{provider: provider, pluginDir: pluginDir, dataDir: t.TempDir(), providers: providers}
	b.host = b.open(t)
	return b
}

func (b *bed) open(t testing.TB) *host.Host {
	t.Helper()
	h, err := host.New(host.Config{Providers: b.providers, PluginDirs: []string{b.pluginDir}, DataDir: b.dataDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
	})
	return h
}

func pid(h *host.Host, provider string) int {
	for _, p := range h.Providers() {
		if p.Name == provider {
			return p.PID
		}
	}
	return 0
}

// options are those that every provider has.
func (b *bed) options() conformance.Options {
	return conformance.Options{
		Host: b.host, Provider: b.provider,
		OtherHost: func(t testing.TB) workspace.Host { return b.open(t) },
		Started:   func(h workspace.Host) bool { return pid(h.(*host.Host), b.provider) != 0 },
		Restart: func(t testing.TB) {
			running := pid(b.host, b.provider)
			if running == 0 {
				return // it is being started again
			}
			process, err := os.FindProcess(running)
			if err == nil {
				err = process.Kill()
			}
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		},
	}
}

// create makes a workspace with one of the bed's providers.
func (b *bed) create(t testing.TB, provider string, opt workspace.Option) {
	t.Helper()
	ws, err := b.host.Workspace(provider, opt)
	if err == nil {
		_, err = ws.WorkingDir(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantKept checks the report: a suite that checked little says little.
func wantKept(t *testing.T, r *conformance.Report, atLeast int, deviating ...string) {
	t.Helper()
	if n := r.Count(conformance.Checked); n < atLeast {
		t.Errorf("%d checks were made, want at least %d", n, atLeast)
	}
	for _, l := range r.Lines {
		declared := false
		for _, rule := range deviating {
			declared = declared || l.Rule() == rule
		}
		if l.Status == conformance.Failed || l.Status == conformance.Deviates && !declared {
			t.Errorf("%s: %s (%s)", l.Check, l.Status, l.Reason)
		}
	}
}

// deviations are those that the running plugin declares.
func (b *bed) deviations(t *testing.T) []sdk.Deviation {
	t.Helper()
	status, err := b.host.Check(t.Context(), b.provider)
	if err != nil {
		t.Fatal(err)
	}
	var all []sdk.Deviation
	for _, d := range status.Deviations {
		all = append(all, sdk.Deviation{Rule: d.Rule, Reason: d.Reason})
	}
	return all
}

func TestLocal(t *testing.T) {
	root := t.TempDir()
	env := map[string]any{"LANG": "de_DE.UTF-8", "CONFORMANCE_PROVIDER": "a  b\n'c'"}
	b := newBed(t, "here", build(t, "examples/provider-local", ".", "berth-provider-local"), map[string]host.Provider{
		"here": {Plugin: "local", Config: map[string]any{"root": root, "env": env}},
	})
	opts := b.options()
	opts.Env = map[string]string{}
	for name, value := range env {
		opts.Env[name] = value.(string)
	}
	opts.Replace = func(t testing.TB, ref workspace.Ref) {
		home := filepath.Join(root, ref.ID)
		entries, err := os.ReadDir(home)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries { // its folder of files, whatever it is called
			if !entry.IsDir() {
				continue
			}
			files := filepath.Join(home, entry.Name())
			if err := errors.Join(os.Rename(files, filepath.Join(t.TempDir(), "old")), os.Mkdir(files, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	opts.Elsewhere = func(t testing.TB) (string, workspace.Ref) {
		name := "made-by-somebody-else"
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		return name, workspace.Ref{Provider: "here", ID: name}
	}
	if opts.Deviations = b.deviations(t); len(opts.Deviations) > 0 {
		t.Errorf("local declares %v, want no deviation", opts.Deviations)
	}
	wantKept(t, conformance.Test(t, opts), 125)
}

// stateBed has two providers that share a store.
func stateBed(t *testing.T, store string) (*bed, conformance.Options) {
	p := host.Provider{Plugin: "state", Config: map[string]any{"store": store}}
	b := newBed(t, "notes", build(t, ".", "./cmd/berth-provider-state", "berth-provider-state"), map[string]host.Provider{"notes": p, "others": p})
	opts := b.options()
	opts.Replace = func(t testing.TB, ref workspace.Ref) {
		if err := b.host.Destroy(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		b.create(t, "notes", workspace.WithToken(ref.ID))
	}
	return b, opts
}

func TestState(t *testing.T) {
	b, opts := stateBed(t, "file:"+filepath.Join(t.TempDir(), "state.db"))
	opts.Elsewhere = func(t testing.TB) (string, workspace.Ref) {
		name := "of-others"
		b.create(t, "others", workspace.WithName(name))
		return name, workspace.Ref{Provider: "notes", ID: name}
	}
	if opts.Deviations = b.deviations(t); len(opts.Deviations) > 0 {
		t.Errorf("state declares %v, want no deviation", opts.Deviations)
	}
	wantKept(t, conformance.Test(t, opts), 70)
}

func TestStateInMemory(t *testing.T) {
	b, opts := stateBed(t, "memory")
	opts.OtherHost, opts.Started = nil, nil // another process has another memory
	opts.Deviations = b.deviations(t)
	wantKept(t, conformance.Test(t, opts), 55, "L6", "B2", "B3")
	// It does what it declares: the workspaces end with the process, and say so.
	ws, err := b.host.Workspace("notes")
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	opts.Restart(t)
	deadline := time.Now().Add(time.Minute)
	for {
		_, err = ws.ReadFile(t.Context(), "a")
		var dead *workspace.PluginError
		if !errors.As(err, &dead) || time.Now().After(deadline) {
			break
		}
	}
	if !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("read after the plugin's end: %v, want %v", err, workspace.ErrUnavailable)
	}
}
