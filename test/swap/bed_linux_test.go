package swap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/durable"
)

// bed is a host with one provider, whose plugin a test replaces.
type bed struct {
	*host.Host
	plugin string
	dir    string // of the plugin
	root   string // of the workspaces
}

// newBed is a host with version a of a plugin, which it has not started.
func newBed(t *testing.T, plugin string, change ...func(*host.Config, *host.Provider)) *bed {
	t.Helper()
	b := &bed{plugin: plugin, dir: t.TempDir(), root: t.TempDir()}
	provider := host.Provider{Config: map[string]any{"root": b.root}}
	if plugin == lasting {
		provider.Config = durable.StartEngine(t, b.root).Config()
	}
	config := host.Config{PluginDirs: []string{b.dir}, Dir: t.TempDir(), DataDir: t.TempDir()}
	for _, c := range change {
		c(&config, &provider)
	}
	config.Providers = map[string]host.Provider{plugin: provider}
	b.install(t, versionA)
	var err error
	if b.Host, err = host.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
		if left := children(t, plugin, b.dir); len(left) > 0 {
			t.Errorf("plugins %v are left", left)
		}
	})
	return b
}

func (b *bed) path() string { return filepath.Join(b.dir, wire.BinaryPrefix+b.plugin) }

// install renames a version into place.
func (b *bed) install(t testing.TB, version string) {
	t.Helper()
	installAt(t, b.path(), version)
}

func installAt(t testing.TB, path, version string) {
	t.Helper()
	if err := os.Link(filepath.Join(binaries, version), path+".new"); err != nil {
		t.Fatal(err)
	}
	// Renaming one name of a file to another one of it does nothing at all.
	_ = os.Remove(path)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) status() host.ProviderStatus { return b.Providers()[0] }

// swap has a version serve.
func (b *bed) swap(t testing.TB, version string) {
	t.Helper()
	b.install(t, version)
	if err := b.Reload(t.Context(), b.plugin); err != nil {
		t.Fatalf("swapping for version %s: %v", version, err)
	}
	if st := b.status(); st.Version != version {
		t.Errorf("version %s serves, not %s", st.Version, version)
	}
}

// alone waits until one process of the plugin runs, or none.
func (b *bed) alone(t testing.TB) {
	t.Helper()
	poll(t, "the old ones to leave", func() bool {
		st := b.status()
		return st.Leaving == 0 && len(children(t, b.plugin, b.dir)) == min(st.PID, 1)
	})
}

func (b *bed) workspace(t testing.TB, opts ...workspace.Option) workspace.Workspace {
	t.Helper()
	ws, err := b.Workspace(b.plugin, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func (b *bed) kinds(t testing.TB) (list []string) {
	t.Helper()
	events, err := b.Events(b.plugin)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return list
}

// children lists this process's plugins whose binary was in dir.
func children(t testing.TB, plugin, dir string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || parentOf(pid) != os.Getpid() {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.HasPrefix(string(args), filepath.Join(dir, wire.BinaryPrefix+plugin)+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf is zero if there is no such process.
func parentOf(pid int) (parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var state string
	if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent); err != nil || state == "Z" {
		return 0
	}
	return parent
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}

// poll waits for something to become true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// holdings are what a host could lose a little of with each swap.
type holdings struct{ goroutines, fds, sockets int }

// within reports whether h is base, give or take what the guests, which live in this
// process too, keep ready of their own: much less than one of anything a swap.
func (h holdings) within(base holdings) bool {
	const ready = loadSwaps / 5
	return h.goroutines <= base.goroutines+ready && h.fds <= base.fds+ready && h.sockets <= base.sockets
}

// pseudoRandom are bytes that are not the same anywhere.
func pseudoRandom(n, seed int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// ranOnce fails unless each id stands once in a file.
func ranOnce(t testing.TB, content []byte, ids []string) {
	t.Helper()
	got := strings.Fields(string(content))
	slices.Sort(got)
	want := slices.Clone(ids)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d commands ran, %d were to: %v, %v", len(got), len(want), got, want)
	}
}

// atMostOnce fails if an id stands twice in a file, or an acknowledged one not.
func atMostOnce(t testing.TB, content []byte, acknowledged []string) {
	t.Helper()
	times := make(map[string]int)
	for _, id := range strings.Fields(string(content)) {
		if times[id]++; times[id] > 1 {
			t.Errorf("command %s ran twice", id)
		}
	}
	for _, id := range acknowledged {
		if times[id] == 0 {
			t.Errorf("command %s did not run, though its end was told", id)
		}
	}
}
