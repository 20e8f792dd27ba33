package budget

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// plugins are the faulty plugins and the local one, built once.
var plugins faults.Plugins

const (
	local = "local"
	// pluginsEnv has a test that is run as another user find what was built.
	pluginsEnv = "BERTH_TEST_BUDGET_PLUGINS"
	// hostEnv makes the test binary a host that starts a plugin of that name, tells
	// its pid, and waits to be killed.
	hostEnv = "BERTH_TEST_BUDGET_HOST"
	nobody  = 65534
)

func TestMain(m *testing.M) {
	plugins.Dir = os.Getenv(pluginsEnv)
	if name := os.Getenv(hostEnv); name != "" {
		os.Exit(hostMain(name))
	}
	if plugins.Dir != "" {
		os.Exit(m.Run())
	}
	os.Exit(faults.Main(builder{m}, &plugins))
}

// builder adds the local plugin before the tests run.
type builder struct{ m *testing.M }

func (b builder) Run() int {
	build := exec.Command("go", "build", "-buildvcs=false", "-o", plugins.Path(local), ".")
	build.Dir = filepath.Join("..", "..", "examples", "provider-local")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the local plugin: %v: %s\n", err, out)
		return 1
	}
	if err := os.Chmod(filepath.Dir(plugins.Dir), 0o755); err != nil { //nolint:gosec // other users run what is there
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.m.Run()
}

// withoutPrivileges runs the calling test as another user if this one may do
// everything, and reports whether it has: then there is nothing left to do.
func withoutPrivileges(t *testing.T) (done bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	home, err := os.MkdirTemp("/tmp", "budget") //nolint:usetesting // another user comes to it, and it is short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), pluginsEnv+"="+plugins.Dir, "HOME="+home, "TMPDIR="+home, "XDG_RUNTIME_DIR=", "XDG_DATA_HOME=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("as uid %d: %v\n%s", nobody, err, out)
	}
	return true
}

// patience is for what takes a second or two, on a machine with no time to spare.
const patience = 60 * time.Second

// poll waits for something to become true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// newHost is a host of one provider for each budget.
func newHost(t testing.TB, budgets map[string]host.Budget, change ...func(*host.Config)) *host.Host {
	t.Helper()
	config := host.Config{PluginDirs: []string{plugins.Dir}, Dir: t.TempDir(), DataDir: t.TempDir(), Providers: map[string]host.Provider{}}
	for name, b := range budgets {
		p := host.Provider{Budget: b}
		if name == local {
			p.Config = map[string]any{"root": "./w"}
		}
		config.Providers[name] = p
	}
	for _, c := range change {
		c(&config)
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Shutdown(ctx) // some tests leave calls that do not end
	})
	return h
}

func open(t testing.TB, h *host.Host, provider string) workspace.Workspace {
	t.Helper()
	ws, err := h.Workspace(provider)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.WorkingDir(t.Context()); err != nil {
		t.Fatalf("open %s: %v", provider, err)
	}
	return ws
}

// order makes a faulty plugin do something, by a call that is never made twice.
func order(ctx context.Context, ws workspace.Workspace, what string) error {
	return ws.MkdirAll(ctx, "/"+what)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// status is that of one provider.
func status(t testing.TB, h *host.Host, provider string) host.ProviderStatus {
	t.Helper()
	for _, st := range h.Providers() {
		if st.Name == provider {
			return st
		}
	}
	t.Fatalf("no provider %s", provider)
	return host.ProviderStatus{}
}

// told are the events of a kind.
func told(t testing.TB, h *host.Host, provider, kind string) (texts []string) {
	t.Helper()
	events, err := h.Events(provider)
	must(t, err)
	for _, e := range events {
		if e.Kind == kind {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// bounded reports whether control groups bound the plugin that was started last, by
// what the host tells.
func bounded(t testing.TB, h *host.Host, provider string) (byGroup bool) {
	t.Helper()
	var texts []string
	poll(t, "what bounds it is told", func() bool {
		texts = told(t, h, provider, "bounded")
		return len(texts) > 0
	})
	last := texts[len(texts)-1]
	byGroup, without := strings.Contains(last, "by a control group"), strings.Contains(last, "no control group: ")
	if byGroup == without {
		t.Fatalf("what bounds it: %s", last)
	}
	return byGroup
}

// groupsOf are the control groups of a process, by their controllers.
func groupsOf(t testing.TB, pid string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	must(t, err)
	groups := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			groups[fields[1]] = fields[2]
		}
	}
	return groups
}

func hostMain(name string) int {
	h, err := host.New(host.Config{
		PluginDirs: []string{plugins.Dir}, Dir: os.TempDir(), DataDir: os.TempDir(),
		Providers: map[string]host.Provider{name: {Budget: host.Budget{Memory: 128 << 20, CPU: 1}}},
	})
	if err == nil {
		_, err = h.Check(context.Background(), name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(h.Providers()[0].PID)
	select {}
}
