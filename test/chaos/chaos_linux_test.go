package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/test/durable"
	"github.com/berth-dev/berth/test/faults"
)

const (
	// envChaos is how long the storm lasts, such as 2m.
	envChaos     = "BERTH_TEST_CHAOS"
	defaultChaos = 10 * time.Second
	// callersEach work on one provider.
	callersEach = 6
	// liveness notices a frozen plugin within three times this.
	liveness = 500 * time.Millisecond
	// strike is between two of the storm's strikes, calm between two at the same
	// provider: longer than the host waits before it starts one that keeps dying, or
	// no command could be found again in the 10 s for which it is kept.
	strike = 300 * time.Millisecond
	calm   = 5 * time.Second
	// breath is how long a plugin that was started again is left alone: time to be
	// asked for the commands that it can find. On a slow machine much of their 10 s is
	// over by then, and another strike would take the rest.
	breath = time.Second
	// settled is more than what is left takes to go.
	settled = 30 * time.Second
	// memoryMore is how much the heap may have grown: a thousandth of what went
	// through it.
	memoryMore = 32 << 20
)

// pluginOf is each provider's plugin.
var pluginOf = map[string]string{
	"notes": "state", "books": "state", "left": "local", "right": "local", "lasting": durable.Name, "noisy": faults.Good,
}

// TestChaos has six providers under constant load while plugins are killed, frozen,
// swapped, and flood their logs: what was acknowledged is not lost, no command runs
// twice, every error has its type, and nothing is left behind.
func TestChaos(t *testing.T) {
	roots := t.TempDir()
	files := newPlugins(t, pluginOf)
	temp := privateTemp(t)
	engine := durable.StartEngine(t, filepath.Join(roots, "lasting"))
	before := measure(t, temp, files.dir, roots)
	h := newHost(t, files, roots, engine)
	ctx, cancel := context.WithTimeout(t.Context(), chaosTime(t))
	defer cancel()

	storm := &storm{t: t, host: h, files: files, struck: map[string]time.Time{}, version: map[string]int{}, count: map[string]int{}}
	var work sync.WaitGroup
	var checks []func()
	tallies := map[string]*tally{}
	for provider := range pluginOf {
		tallies[provider] = &tally{}
		check := callers(ctx, t, &work, h, provider, tallies[provider])
		checks = append(checks, check)
	}
	work.Go(func() { storm.rage(ctx) })
	work.Wait()

	for _, check := range checks {
		check()
	}
	for _, provider := range slices.Sorted(maps.Keys(tallies)) {
		t.Logf("%s: %d calls, %d broken", provider, tallies[provider].done.Load(), tallies[provider].broken.Load())
	}
	t.Logf("struck by %v", storm.count)
	if err := h.Close(); err != nil {
		t.Errorf("closing the host: %v", err)
	}
	before.compare(t, temp, files.dir, roots)
}

func chaosTime(t testing.TB) time.Duration {
	text := os.Getenv(envChaos)
	if text == "" {
		return defaultChaos
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// privateTemp has all temporary files in a folder of the test's own. Sockets lie in
// it, whose paths have 107 bytes at most.
func privateTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") //nolint:usetesting // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func newHost(t *testing.T, files plugins, roots string, engine *durable.Engine) *host.Host {
	t.Helper()
	config := host.Config{
		PluginDirs: []string{files.dir}, Dir: roots, DataDir: filepath.Join(roots, "data"),
		Logger:    hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: io.Discard}),
		Deadlines: host.Deadlines{Liveness: liveness}, Providers: map[string]host.Provider{},
	}
	for provider, plugin := range pluginOf {
		p := host.Provider{Budget: host.Budget{Restarts: host.UnlimitedRestarts}}
		switch plugin {
		case "state":
			p.Config = map[string]any{"store": "file:" + filepath.Join(roots, provider+".db")}
		case "local":
			p.Config = map[string]any{"root": filepath.Join(roots, provider)}
		case durable.Name:
			p.Config = engine.Config()
		}
		config.Providers[provider] = p
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // when the test fails before its end
	return h
}

// callers begins the work on one provider. The function that it returns compares in
// the end.
func callers(ctx context.Context, t *testing.T, work *sync.WaitGroup, h *host.Host, provider string, tally *tally) func() {
	t.Helper()
	ws, err := h.Workspace(provider)
	if err != nil {
		t.Fatal(err)
	}
	plugin := pluginOf[provider]
	ledger := &ledger{}
	var all []*caller
	for n := range callersEach {
		c := &caller{
			t: t, ws: ws, name: fmt.Sprintf("%s-%d", provider, n), random: rand.New(rand.NewPCG(uint64(n), 1)),
			tally: tally, lasting: plugin == durable.Name, ledger: ledger,
		}
		all = append(all, c)
		steps := []func(context.Context, int){c.write, c.read}
		switch plugin {
		case faults.Good:
			steps = []func(context.Context, int){c.pause, c.ask("/ping"), c.ask("/flood-stderr/2000/100"), c.ask("/flood-stdout/100/70000"), c.ask("/garbage"), c.ask("/exit/9")}
		case "local", durable.Name:
			steps = append(steps, c.run, c.run)
		}
		work.Go(func() { c.work(ctx, steps...) })
	}
	return func() {
		if plugin == faults.Good {
			return
		}
		defer func() {
			ref, _ := ws.Ref()
			if err := h.Destroy(t.Context(), ref); err != nil {
				t.Errorf("destroying %s: %v", ref, err)
			}
		}()
		for _, c := range all {
			c.read(t.Context(), 0)
		}
		if plugin != "state" {
			ledger.check(t, ws)
		}
	}
}

// storm is what happens to the plugins.
type storm struct {
	t       *testing.T
	host    *host.Host
	files   plugins
	struck  map[string]time.Time
	version map[string]int
	count   map[string]int
}

func (s *storm) rage(ctx context.Context) {
	tick := time.NewTicker(strike)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		st := s.host.Providers()[rand.IntN(len(pluginOf))]
		if st.PID == 0 || time.Since(s.struck[st.Name]) < calm || pluginOf[st.Name] == durable.Name && time.Since(st.Since) < breath {
			continue
		}
		s.struck[st.Name] = time.Now()
		what := []string{"kill", "freeze", "swap", "swap and kill"}[rand.IntN(4)]
		s.count[what]++
		switch what {
		case "kill":
			_ = syscall.Kill(st.PID, syscall.SIGKILL)
		case "freeze":
			_ = syscall.Kill(st.PID, syscall.SIGSTOP)
		case "swap":
			s.swap(ctx, st.Name)
		case "swap and kill":
			s.swap(ctx, st.Name)
			_ = syscall.Kill(st.PID, syscall.SIGKILL) // the old one, if it has not left
		}
	}
}

// swap puts another file into place and has the host take it. One that is asked to
// end itself meanwhile may fail.
func (s *storm) swap(ctx context.Context, provider string) {
	s.version[provider] = (s.version[provider] + 1) % versions
	s.files.install(s.t, provider, s.version[provider])
	if err := s.host.Reload(context.WithoutCancel(ctx), provider); err != nil && pluginOf[provider] != faults.Good {
		s.t.Errorf("swapping %s: %v", provider, err)
	}
}

// holdings are what a host could leave behind.
type holdings struct {
	fds   int
	heap  uint64
	procs []string
	temp  []string
}

func measure(t testing.TB, temp, bins, roots string) (m holdings) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	m.fds = len(entries)
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.heap = stats.HeapAlloc
	m.procs = processesOf(t, bins, roots)
	list, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		m.temp = append(m.temp, entry.Name())
	}
	return m
}

// processesOf lists those whose program lies in bins, or that work in roots.
func processesOf(t testing.TB, bins, roots string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		exe, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		cwd, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if strings.HasPrefix(exe, bins) || strings.HasPrefix(cwd, roots) {
			args, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
			list = append(list, fmt.Sprintf("%s %q", entry.Name(), args))
		}
	}
	return list
}

// compare fails if more is held than before, once what ends has had time to.
func (before holdings) compare(t testing.TB, temp, bins, roots string) {
	t.Helper()
	var now holdings
	for deadline := time.Now().Add(settled); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now = measure(t, temp, bins, roots)
		if now.fds <= before.fds && len(now.procs) <= len(before.procs) && len(now.temp) <= len(before.temp) && now.heap <= before.heap+memoryMore {
			t.Logf("left: %d descriptors of %d, heap %d KiB of %d", now.fds, before.fds, now.heap>>10, before.heap>>10)
			return
		}
	}
	t.Errorf("left: %d descriptors of %d, heap %d KiB of %d, processes %v, temporary files %v",
		now.fds, before.fds, now.heap>>10, before.heap>>10, now.procs, now.temp)
}
