package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/test/faults"
)

// installed is what stands in a plugin folder, of which a test changes its mind.
type installed struct{ name atomic.Value }

func install(name string) *installed {
	i := &installed{}
	i.put(name)
	return i
}

func (i *installed) put(name string) { i.name.Store(name) }

// config is that of a supervisor whose binary is what is installed.
func (i *installed) config(t testing.TB) Config {
	cfg := testConfig(t, "")
	cfg.Find = func() (catalog.Binary, error) { return catalog.Find(i.name.Load().(string), []string{plugins.Dir}) }
	return cfg
}

// reload swaps, and fails the test if that fails.
func reload(t testing.TB, s *Supervisor) {
	t.Helper()
	if err := s.Reload(t.Context()); err != nil {
		t.Fatalf("reload: %v", err)
	}
}

// kinds are those of the events so far.
func kinds(s *Supervisor) (list []string) {
	for _, e := range s.cfg.Events.List() {
		list = append(list, e.Kind)
	}
	return list
}

func hasEvent(s *Supervisor, kind, text string) bool {
	return slices.ContainsFunc(s.cfg.Events.List(), func(e events.Event) bool {
		return e.Kind == kind && strings.Contains(e.Text, text)
	})
}

func leaving(inst *Instance) bool { return exited(inst.Leaving()) }

// onlyRuns waits until the binary of that name runs once for each pid, and no more.
func onlyRuns(t testing.TB, name string, pids ...int) {
	t.Helper()
	var want []string
	for _, pid := range pids {
		want = append(want, strconv.Itoa(pid))
	}
	slices.Sort(want)
	poll(t, fmt.Sprintf("of %s run %v alone", name, want), func() bool {
		return slices.Equal(childrenOf(t, name), want)
	})
}

// childrenOf lists this process's own plugins of that name.
func childrenOf(t testing.TB, name string) (pids []string) {
	for _, pid := range running(t, plugins.Path(name)) {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil {
			continue
		}
		var state string
		var parent int
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func TestReloadSwapsAndTheOldOneFinishesWhatItHas(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	old := acquire(t, s)
	answered := make(chan error, 1)
	go func() { _, err := do(t.Context(), old, "sleep/300ms"); answered <- err }()
	bin.put(faults.Lifeline)
	reload(t, s)
	if !leaving(old) {
		t.Error("the old one does not know that it leaves")
	}
	next := acquire(t, s)
	if next.PID() == old.PID() || next.Describe().GetName() != faults.Lifeline || leaving(next) {
		t.Errorf("pid %d, then %d: %v", old.PID(), next.PID(), next.Describe())
	}
	st := s.Status()
	if st.State != Running || st.PID != next.PID() || st.Leaving != 1 || st.Restarts != 0 || st.SwapError != nil || st.Path != plugins.Path(faults.Lifeline) || st.Calls != 2 {
		t.Errorf("%+v", st)
	}
	if err := <-answered; err != nil {
		t.Errorf("a call of the old one: %v", err)
	}
	if answer, err := do(t.Context(), old, "ping"); err != nil || answer != "pong" {
		t.Errorf("who has the old one: %q, %v", answer, err)
	}
	if exited(old.Exited()) {
		t.Error("the old one ended while somebody had it")
	}
	old.Release()
	poll(t, "the old one to leave", func() bool { return s.Status().Leaving == 0 })
	onlyRuns(t, faults.Good)
	if st := s.Status(); st.State != Running || st.LastError != nil {
		t.Errorf("%+v", st)
	}
	if want := []string{events.Start, events.Started, events.Swap, events.Swapped, events.Drained}; !slices.Equal(kinds(s), want) {
		t.Errorf("events %v, not %v", kinds(s), want)
	}
}

func TestReloadReplacesAnUnchangedBinary(t *testing.T) {
	s := supervise(t, install(faults.Good).config(t))
	old := acquire(t, s)
	old.Release()
	reload(t, s)
	next := acquire(t, s)
	if next.PID() == old.PID() {
		t.Error("it is the same process")
	}
	onlyRuns(t, faults.Good, next.PID())
}

func TestReloadWithNoneRunningStartsOneThatStays(t *testing.T) {
	s := supervise(t, install(faults.Good).config(t))
	reload(t, s)
	st := s.Status()
	if st.State != Running || st.PID == 0 || st.Leaving != 0 {
		t.Errorf("%+v", st)
	}
	if inst := acquire(t, s); inst.PID() != st.PID {
		t.Error("the next call started another one")
	}
}

func TestReloadAfterADeathDoesNotWait(t *testing.T) {
	bin := install(faults.Exit7)
	cfg := bin.config(t)
	cfg.BackoffMax = time.Hour
	s := supervise(t, cfg)
	for range 2 {
		if err := s.Reload(t.Context()); err == nil {
			t.Fatal("it started")
		}
	}
	s.mu.Lock()
	s.backoff.until = time.Now().Add(time.Hour)
	s.mu.Unlock()
	bin.put(faults.Good)
	reload(t, s)
	if inst := acquire(t, s); inst.Describe().GetName() != faults.Good {
		t.Errorf("%v", inst.Describe())
	}
}

func TestANewOneThatDoesNotComeUpLeavesTheOldOne(t *testing.T) {
	for name, test := range map[string]struct {
		installs string
		hangs    bool
		want     string
	}{
		"missing":                    {installs: "nowhere", want: "berth-provider-nowhere"},
		"fails to start":             {installs: faults.Exit7, want: "flux capacitor"},
		"ends without a word":        {installs: faults.Exit0, want: "exit"},
		"panics":                     {installs: faults.PanicInit, want: "no luck at init"},
		"another protocol":           {installs: faults.OtherVersion, want: "99"},
		"garbage":                    {installs: faults.Garbage, want: "handshake"},
		"no gRPC":                    {installs: faults.NoServer, want: faults.NoServer},
		"nonsense":                   {installs: faults.Nonsense, want: "describe"},
		"dies in Describe":           {installs: faults.DieDescribe, want: "describe is the last thing I do"},
		"refuses its configuration":  {installs: faults.Refuses, want: "image: no such thing"},
		"does not speak":             {installs: faults.Silent, hangs: true, want: "start"},
		"does not answer Describe":   {installs: faults.HangDescribe, hangs: true, want: "describe"},
		"freezes after its greeting": {installs: faults.FrozenStart, hangs: true, want: "start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := install(faults.Good)
			cfg := bin.config(t)
			s := supervise(t, cfg)
			old := acquire(t, s)
			if test.hangs {
				s.cfg.StartTimeout = 500 * time.Millisecond // of the next one alone
			}
			bin.put(test.installs)
			for range 2 {
				err := s.Reload(t.Context())
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v", err)
				}
			}
			if leaving(old) {
				t.Error("the old one is leaving")
			}
			if answer, err := do(t.Context(), old, "ping"); err != nil || answer != "pong" {
				t.Errorf("the old one: %q, %v", answer, err)
			}
			again := acquire(t, s)
			if again.PID() != old.PID() {
				t.Error("another one runs")
			}
			st := s.Status()
			if st.State != Running || st.PID != old.PID() || st.Restarts != 0 || st.Leaving != 0 || st.LastError != nil ||
				st.SwapError == nil || !strings.Contains(st.SwapError.Error(), test.want) || st.Version != "1.2.3" || st.Path != plugins.Path(faults.Good) {
				t.Errorf("%+v", st)
			}
			if !hasEvent(s, events.SwapRefused, test.want) {
				t.Errorf("events %+v", s.cfg.Events.List())
			}
			if test.installs != "nowhere" {
				poll(t, "the new one to be gone", func() bool { return len(childrenOf(t, test.installs)) == 0 })
			}
			s.cfg.StartTimeout = time.Minute
			bin.put(faults.Good)
			reload(t, s)
			if st := s.Status(); st.SwapError != nil || st.PID == old.PID() {
				t.Errorf("after a good one: %+v", st)
			}
		})
	}
}

func TestASchemaThatRefusesTheConfigurationLeavesTheOldOne(t *testing.T) {
	refuse := errors.New("config.image: want a string, not a number")
	var refuses atomic.Bool
	cfg := install(faults.Good).config(t)
	cfg.Configure = func(context.Context, catalog.Binary, *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error) {
		if refuses.Load() {
			return nil, refuse
		}
		return &berthv1.ConfigureRequest{Provider: "test", Config: []byte("{}")}, nil
	}
	s := supervise(t, cfg)
	old := acquire(t, s)
	refuses.Store(true)
	if err := s.Reload(t.Context()); !errors.Is(err, refuse) {
		t.Error(err)
	}
	if st := s.Status(); !errors.Is(st.SwapError, refuse) || st.PID != old.PID() {
		t.Errorf("%+v", st)
	}
	onlyRuns(t, faults.Good, old.PID())
}

func TestCallersOfReloadShareOneSwap(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	old := acquire(t, s)
	bin.put(faults.Slow)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := s.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	poll(t, "the swap", func() bool { return slices.Contains(kinds(s), events.Swap) })
	if inst := acquire(t, s); inst.PID() != old.PID() {
		t.Error("a call in mid-swap did not get the old one")
	}
	wg.Wait()
	if n := len(childrenOf(t, faults.Slow)); n != 1 {
		t.Errorf("%d processes", n)
	}
	if want := []string{events.Start, events.Started, events.Swap, events.Swapped}; !slices.Equal(kinds(s), want) {
		t.Errorf("events %v, not %v", kinds(s), want)
	}
}

// TestWhoeverComesAfterABinaryWasReplacedGetsThatOne though a swap to the one
// before is under way.
func TestWhoeverComesAfterABinaryWasReplacedGetsThatOne(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	acquire(t, s)
	bin.put(faults.Slow)
	first := make(chan error, 1)
	go func() { first <- s.Reload(t.Context()) }()
	poll(t, "the swap", func() bool { return slices.Contains(kinds(s), events.Swap) })
	bin.put(faults.Lifeline)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := s.Reload(t.Context()); err != nil {
				t.Error(err)
			}
			if st := s.Status(); st.Path != plugins.Path(faults.Lifeline) {
				t.Errorf("%s serves", st.Path)
			}
		})
	}
	wg.Wait()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if n := len(childrenOf(t, faults.Lifeline)); n != 1 {
		t.Errorf("%d processes of the newest", n)
	}
}

func TestASwapForWhichNobodyWaitsIsGivenUp(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	old := acquire(t, s)
	bin.put(faults.Silent)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	firstCtx, firstCancel := context.WithCancel(t.Context())
	go func() { first <- s.Reload(firstCtx) }()
	poll(t, "the new one's process", func() bool { return len(childrenOf(t, faults.Silent)) == 1 })
	go func() { second <- s.Reload(ctx) }()
	poll(t, "both to wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.start.asking == 2
	})
	firstCancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(childrenOf(t, faults.Silent)) != 1 {
		t.Error("it was given up while somebody waited")
	}
	cancel()
	within(t, shortly, "a cancelled reload", func() {
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	bin.put(faults.Good) // whoever comes now gets another one
	reload(t, s)
	poll(t, "the one given up to be gone", func() bool { return len(childrenOf(t, faults.Silent)) == 0 })
	if st := s.Status(); st.State != Running || st.PID == old.PID() || st.SwapError != nil || st.LastError != nil {
		t.Errorf("%+v", st)
	}
}

// TestAStartThatACallNeedsIsNotGivenUp with the Reload that began it.
func TestAStartThatACallNeedsIsNotGivenUp(t *testing.T) {
	s := supervise(t, install(faults.Slow).config(t))
	ctx, cancel := context.WithCancel(t.Context())
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload(ctx) }()
	poll(t, "the start", func() bool { return slices.Contains(kinds(s), events.Start) })
	got := make(chan error, 1)
	go func() {
		inst, err := s.Acquire(t.Context())
		if err == nil {
			inst.Release()
		}
		got <- err
	}()
	poll(t, "the call to wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.start.needed
	})
	cancel()
	if err := <-reloaded; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestAStartOfReloadAloneThatIsGivenUpLeavesNothing(t *testing.T) {
	s := supervise(t, install(faults.Silent).config(t))
	ctx, cancel := context.WithCancel(t.Context())
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.Reload(ctx) }()
	poll(t, "its process", func() bool { return len(childrenOf(t, faults.Silent)) == 1 })
	cancel()
	if err := <-reloaded; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	poll(t, "it to be gone", func() bool { return s.Status().State == Stopped && len(childrenOf(t, faults.Silent)) == 0 })
}

func TestAProviderInThisProcessIsNotSwapped(t *testing.T) {
	cfg := testConfig(t, "")
	cfg.Find = nil
	cfg.InProcess = func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, inProcess{}) }
	cfg.IdleTimeout = 10 * time.Millisecond
	s := supervise(t, cfg)
	inst := acquire(t, s)
	if err := s.Reload(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if st := s.Status(); st.SwapError == nil || leaving(inst) {
		t.Errorf("%+v", st)
	}
}

// TestSwapsUnderLoad: every call is answered, by one that has it, and the last of
// the old ones leaves.
func TestSwapsUnderLoad(t *testing.T) {
	bin := install(faults.Good)
	s := supervise(t, bin.config(t))
	acquire(t, s).Release()
	const callers, swaps = 20, 30
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var calls atomic.Int64
	for i := range callers {
		what, want := "ping", "pong"
		if i%4 == 0 {
			what, want = "sleep/20ms", "slept"
		}
		wg.Go(func() {
			for !exited(stop) {
				inst, err := s.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if answer, err := do(t.Context(), inst, what); err != nil || answer != want {
					t.Errorf("%q, %v", answer, err)
				}
				inst.Release()
				calls.Add(1)
			}
		})
	}
	for i := range swaps {
		bin.put([]string{faults.Good, faults.Lifeline}[i%2])
		reload(t, s)
	}
	close(stop)
	wg.Wait()
	poll(t, "the old ones to leave", func() bool { return s.Status().Leaving == 0 })
	if calls.Load() < callers {
		t.Errorf("only %d calls", calls.Load())
	}
	if n := len(childrenOf(t, faults.Good)) + len(childrenOf(t, faults.Lifeline)); n != 1 {
		t.Errorf("%d processes", n)
	}
	if st := s.Status(); st.Restarts != 0 || st.LastError != nil || st.SwapError != nil {
		t.Errorf("%+v", st)
	}
}

func TestSwapsLeakNothing(t *testing.T) {
	s := supervise(t, install(faults.Good).config(t))
	acquire(t, s).Release()
	swap := func() {
		reload(t, s)
		poll(t, "the old one to leave", func() bool { return s.Status().Leaving == 0 })
	}
	for range 5 {
		swap()
	}
	before := measure(t)
	for range 30 {
		swap()
	}
	var after usage
	poll(t, "goroutines and descriptors as before", func() bool {
		after = measure(t)
		return after.goroutines <= before.goroutines && after.fds <= before.fds
	})
	const room = 16 << 10 // KiB; a leak of a connection a swap would be more
	if after.rss > before.rss+room {
		t.Errorf("%+v, then %+v", before, after)
	}
}
