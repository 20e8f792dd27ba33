package supervisor

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/faults"
)

// usage is what a process could lose a little of with every crash.
type usage struct {
	goroutines, fds, threads int
	rss                      int // KiB
}

func measure(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	u := usage{goroutines: runtime.NumGoroutine(), fds: len(fds), threads: len(threads)}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if u.rss, err = strconv.Atoi(strings.Fields(value)[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return u
}

// Starts, crashes and restarts leave nothing behind in the host.
func TestCrashesLeakNothing(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	cfg.BackoffMax = -1
	s := supervise(t, cfg)
	crash := func() {
		inst, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		if _, err := do(t.Context(), inst, "exit/1"); err == nil {
			t.Fatal("it did not crash")
		}
		<-inst.Exited()
	}
	const warmUp, crashes = 20, 200
	var before, after usage
	for i := range warmUp + crashes {
		if i == warmUp {
			poll(t, "quiet", func() bool { return s.Status().State == Failed })
			before = measure(t)
		}
		crash()
	}
	poll(t, "goroutines and descriptors as before", func() bool {
		after = measure(t)
		return after.goroutines <= before.goroutines+3 && after.fds <= before.fds+3
	})
	t.Logf("before %+v, after %+v", before, after)
	if after.threads > before.threads+5 {
		t.Errorf("%d threads, then %d", before.threads, after.threads)
	}
	const room = 32 << 10 // KiB; a leak of a connection a crash would be more
	if after.rss > before.rss+room {
		t.Errorf("%d KiB, then %d KiB", before.rss, after.rss)
	}
	if st := s.Status(); st.Restarts != warmUp+crashes-1 {
		t.Errorf("%d restarts", st.Restarts)
	}
}

// So do starts that fail.
func TestFailedStartsLeakNothing(t *testing.T) {
	for _, name := range []string{faults.Exit7, faults.PrintFirst, faults.NoServer, faults.DieDescribe, faults.FrozenStart} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, name)
			cfg.BackoffMax = -1
			if name == faults.FrozenStart {
				cfg.StartTimeout = 200 * time.Millisecond
			}
			s := supervise(t, cfg)
			fail := func() {
				if _, err := s.Acquire(t.Context()); err == nil {
					t.Fatal("it started")
				}
			}
			fail()
			before := measure(t)
			for range 5 {
				fail()
			}
			poll(t, "goroutines and descriptors as before", func() bool {
				after := measure(t)
				return after.goroutines <= before.goroutines && after.fds <= before.fds
			})
		})
	}
}
