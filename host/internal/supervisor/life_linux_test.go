package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// poll waits for something to become true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// shortly is for what takes milliseconds, on a machine with no time to spare, where
// the fault would take a minute.
const shortly = 20 * time.Second

// within fails if f takes longer than limit, which leaves wide room above what
// is promised.
func within(t testing.TB, limit time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("%s took %v, longer than %v", what, took, limit)
	}
}

// running lists the processes of the binary at path.
func running(t testing.TB, path string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == path {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

func asPluginError(t testing.TB, err error) *workspace.PluginError {
	t.Helper()
	var plug *workspace.PluginError
	if !errors.As(err, &plug) {
		t.Fatalf("%T: %v", err, err)
	}
	return plug
}

func TestManyCallersStartOneProcess(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Slow))
	path := plugins.Path(faults.Slow)
	var slowest time.Duration
	var most int
	stop := make(chan struct{})
	var observer sync.WaitGroup
	observer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			began := time.Now()
			s.Status()
			slowest = max(slowest, time.Since(began))
			most = max(most, len(running(t, path)))
		}
	})
	// One who gives up leaves at once.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	callers.Go(func() {
		within(t, shortly, "a caller with 500 ms", func() {
			if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still starting") {
				t.Errorf("it got %v", err)
			}
		})
	})
	pids := make(chan int, 100)
	for range cap(pids) {
		callers.Go(func() {
			inst, err := s.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				pids <- 0
				return
			}
			defer inst.Release()
			pids <- inst.PID()
		})
	}
	callers.Wait()
	close(stop)
	observer.Wait()
	first := <-pids
	for range cap(pids) - 1 {
		if pid := <-pids; pid != first {
			t.Errorf("pid %d and pid %d", first, pid)
		}
	}
	if most != 1 {
		t.Errorf("%d processes at once", most)
	}
	if slowest > 200*time.Millisecond { // 10 ms on an idle machine
		t.Errorf("a status query took %v", slowest)
	}
}

// A start whose callers have all left is there for the next one.
func TestStartOutlivesItsCallers(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Slow))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	poll(t, "running", func() bool { return s.Status().State == Running })
	pid := s.Status().PID
	if inst := acquire(t, s); inst.PID() != pid {
		t.Errorf("pid %d, then %d", pid, inst.PID())
	}
}

func TestCrashIsATypedErrorAndARestart(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Good))
	inst := acquire(t, s)
	failed := make(chan error, 1)
	go func() {
		_, err := do(t.Context(), inst, "sleep/1m")
		failed <- err
	}()
	if _, err := do(t.Context(), inst, "stderr/last words"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(inst.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var plug *workspace.PluginError
	within(t, shortly, "the typed error", func() { // 100 ms
		plug = inst.Error("run", "run-1", <-failed, true)
	})
	if plug.Provider != "test" || plug.Op != "run" || plug.RunID != "run-1" || plug.PID != inst.PID() || !plug.MayHaveExecuted ||
		plug.ExitStatus != "signal: killed" || len(plug.Stderr) != 1 || plug.Stderr[0] != "last words" || plug.Reason != "the plugin ended during the call" {
		t.Errorf("%+v", plug)
	}
	poll(t, "status", func() bool { return s.Status().State == Failed })
	if st := s.Status(); st.PID != 0 || asPluginError(t, st.LastError).ExitStatus != "signal: killed" {
		t.Errorf("%+v", st)
	}
	// The first death is not waited for.
	within(t, shortly, "the restart", func() {
		again := acquire(t, s)
		if again.PID() == inst.PID() {
			t.Error("the same pid")
		}
		if answer, err := do(t.Context(), again, "ping"); err != nil || answer != "pong" {
			t.Errorf("%q, %v", answer, err)
		}
	})
	// Who still has the dead one is told that it is dead, not that its call was
	// cancelled.
	if _, err := do(t.Context(), inst, "ping"); status.Code(err) != codes.Unavailable {
		t.Errorf("a call on the dead one: %v", err)
	}
	if st := s.Status(); st.Restarts != 1 || st.State != Running {
		t.Errorf("%+v", st)
	}
}

func TestBackoff(t *testing.T) {
	now := time.Now()
	b := backoff{max: 3 * time.Second, healthyAfter: 30 * time.Second}
	var waits []time.Duration
	for range 8 {
		b.died(now, time.Second)
		waits = append(waits, b.wait(now))
	}
	for i, ms := range []int64{0, 100, 200, 400, 800, 1600, 3000, 3000} {
		if waits[i].Milliseconds() != ms {
			t.Errorf("after death %d: %v, want %d ms", i+1, waits[i], ms)
		}
	}
	if b.died(now, time.Minute); b.wait(now) != 0 {
		t.Errorf("after a long life: %v", b.wait(now))
	}
	for range 10_000 {
		b.died(now, 0)
	}
	if got := b.wait(now); got != b.max {
		t.Errorf("after very many deaths: %v", got)
	}
}

// A plugin that keeps dying is not started in a loop; who cannot wait is told
// why.
func TestBackoffIsWaitedForAndExplained(t *testing.T) {
	cfg := testConfig(t, faults.Exit7)
	cfg.BackoffMax = time.Hour
	s := supervise(t, cfg)
	for range 2 {
		_, err := s.Acquire(t.Context())
		if plug := asPluginError(t, err); plug.ExitStatus != "exit status 7" || plug.Op != "start" {
			t.Fatalf("%+v", plug)
		}
	}
	within(t, 20*time.Second, "a third and fourth start", func() {
		for range 2 {
			began := time.Now()
			_, err := s.Acquire(t.Context())
			if plug := asPluginError(t, err); plug.ExitStatus != "exit status 7" {
				t.Errorf("%+v", plug)
			}
			if time.Since(began) < backoffFirst/2 {
				t.Errorf("started again after %v", time.Since(began))
			}
		}
	})
	s.mu.Lock()
	s.backoff.until = time.Now().Add(time.Hour)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Acquire(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || asPluginError(t, err).ExitStatus != "exit status 7" || !strings.Contains(err.Error(), "4 times in a row") {
		t.Errorf("error: %v", err)
	}
}

func TestConfigureErrorGoesToAllAsItIs(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	wrong := errors.New("key image: no such key")
	release := make(chan struct{})
	cfg.Configure = func(context.Context, catalog.Binary, *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error) {
		<-release
		return nil, wrong
	}
	s := supervise(t, cfg)
	results := make(chan error)
	const callers = 10
	var joined sync.WaitGroup
	for range callers {
		joined.Add(1)
		go func() {
			joined.Done()
			_, err := s.Acquire(t.Context())
			results <- err
		}()
	}
	joined.Wait()
	close(release)
	for range callers {
		if err := <-results; err != wrong { //nolint:errorlint // the very same
			t.Errorf("error: %v", err)
		}
	}
	if left := running(t, plugins.Path(faults.Good)); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestSetUpFailures(t *testing.T) {
	t.Run("refused configuration", func(t *testing.T) {
		s := supervise(t, testConfig(t, faults.Refuses))
		_, err := s.Acquire(t.Context())
		if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "image: no such thing") {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("dies in describe", func(t *testing.T) {
		s := supervise(t, testConfig(t, faults.DieDescribe))
		_, err := s.Acquire(t.Context())
		plug := asPluginError(t, err)
		if plug.Op != "start" || plug.MayHaveExecuted || plug.ExitStatus != "exit status 5" || len(plug.Stderr) != 1 ||
			plug.Reason != "the plugin ended while it was asked to describe" {
			t.Errorf("%+v", plug)
		}
	})
	t.Run("answers nonsense", func(t *testing.T) {
		s := supervise(t, testConfig(t, faults.Nonsense))
		_, err := s.Acquire(t.Context())
		if plug := asPluginError(t, err); plug.Op != "start" || !strings.Contains(plug.Reason, "its answer to describe") {
			t.Errorf("%+v", plug)
		}
	})
	for name, want := range map[string]string{
		faults.HangDescribe: "it waited for the answer to describe",
		faults.Silent:       "it waited for the handshake line",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, name)
			cfg.StartTimeout = 500 * time.Millisecond
			s := supervise(t, cfg)
			_, err := s.Acquire(t.Context())
			if plug := asPluginError(t, err); plug.Op != "start" || plug.PID == 0 || !strings.Contains(plug.Reason, want) {
				t.Errorf("%+v", plug)
			}
		})
	}
	t.Run("not found", func(t *testing.T) {
		s := supervise(t, testConfig(t, "goad"))
		_, err := s.Acquire(t.Context())
		var missing *catalog.NotFoundError
		if plug := asPluginError(t, err); plug.Op != "start" || !errors.As(err, &missing) || !strings.Contains(plug.Reason, "did you mean good?") {
			t.Errorf("%+v", plug)
		}
		if st := s.Status(); st.State != Failed || st.LastError == nil {
			t.Errorf("%+v", st)
		}
	})
	for _, name := range []string{faults.Refuses, faults.DieDescribe, faults.Nonsense, faults.HangDescribe, faults.Silent} {
		if left := running(t, plugins.Path(name)); len(left) > 0 {
			t.Errorf("%s left running: %v", name, left)
		}
	}
}

// A message over the cap fails its call with an error that names it, and the
// next call is answered.
func TestOversizeMessage(t *testing.T) {
	s := supervise(t, testConfig(t, faults.Good))
	inst := acquire(t, s)
	_, err := do(t.Context(), inst, "big/67108864")
	plug := inst.Error("stat", "", err, true)
	if !strings.Contains(plug.Reason, "larger than the cap of 16777216 bytes") || plug.ExitStatus != "" {
		t.Errorf("answer: %+v", plug)
	}
	_, err = do(t.Context(), inst, "ping/"+strings.Repeat("x", 32<<20))
	if plug := inst.Error("stat", "", err, false); !strings.Contains(plug.Reason, "larger than the cap of 16777216 bytes") {
		t.Errorf("request: %+v", plug)
	}
	if answer, err := do(t.Context(), inst, "ping"); err != nil || answer != "pong" {
		t.Errorf("%q, %v", answer, err)
	}
}

// Whatever one plugin does, another one answers (contract B1).
func TestFaultsStayApart(t *testing.T) {
	quiet := acquire(t, supervise(t, testConfig(t, faults.Good)))
	loud := acquire(t, supervise(t, testConfig(t, faults.Good)))
	var all sync.WaitGroup
	for _, what := range []string{`stderr/{"@message": 1}`, "flood-stderr/20000/1000", "flood-stdout/20000/1000", "big/67108864", "freeze"} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = do(ctx, loud, what)
		})
	}
	var slowest time.Duration
	for range 200 {
		began := time.Now()
		if answer, err := do(t.Context(), quiet, "ping"); err != nil || answer != "pong" {
			t.Fatalf("%q, %v", answer, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	loud.Kill("for the test")
	all.Wait()
	if slowest > shortly {
		t.Errorf("an answer took %v", slowest)
	}
}

// freeze stops a process until it gets SIGCONT. The signal takes a moment to
// reach all of its threads.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	poll(t, "frozen", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(stats) == 0 {
			t.Fatal(stats, err)
		}
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			if _, rest, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(rest, "T") {
				return false
			}
		}
		return true
	})
}
