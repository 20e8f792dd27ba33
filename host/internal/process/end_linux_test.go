package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/test/faults"
)

// gone reports whether no process has the pid, or a zombie that is not ours.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

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

// soon is for what takes milliseconds, on a machine with no time to spare, where
// the fault would take a minute.
const soon = 20 * time.Second

// TestFrozenPluginIsStopped is of one that is stopped with less time than
// stopGrace, which it would take otherwise. On a busy machine one stop may take as
// long all the same; not each.
func TestFrozenPluginIsStopped(t *testing.T) {
	const tries = 5
	for try := 1; ; try++ {
		took := stopFrozen(t, 200*time.Millisecond)
		if took <= stopGrace || t.Failed() {
			return
		}
		if try == tries {
			t.Fatalf("a stop with 200 ms took %v, and more than %v in %d tries", took, stopGrace, tries)
		}
	}
}

func stopFrozen(t *testing.T, timeout time.Duration) (took time.Duration) {
	t.Helper()
	p := start(t, testConfig(t, faults.Good))
	faults.Freeze(t, p.PID())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	began := time.Now()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	took = time.Since(began)
	if !gone(p.PID()) {
		t.Error("it is still there")
	}
	if got := p.ExitStatus(); got != "signal: killed" || p.Reason() == "" {
		t.Errorf("%s, %q", got, p.Reason())
	}
	return took
}

func TestKilledPluginIsSeenAtOnce(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	failed := make(chan error, 1)
	go func() {
		_, err := do(t.Context(), p, "sleep/1m")
		failed <- err
	}()
	mustDo(t, p, "stderr/last words")
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "the failed call and the exit", func() { // 100 ms
		if err := <-failed; status.Code(err) != codes.Unavailable {
			t.Errorf("call in flight: %v", err)
		}
		<-p.Exited()
		<-p.Finished()
	})
	if _, err := do(t.Context(), p, "ping"); status.Code(err) != codes.Unavailable {
		t.Errorf("call after it: %v", err)
	}
	if p.ExitStatus() != "signal: killed" || p.Reason() != "" || len(p.Stderr()) != 1 {
		t.Errorf("%s, %q, %q", p.ExitStatus(), p.Reason(), p.Stderr())
	}
	if len(faults.Running(t, plugins.Path(faults.Good))) > 0 {
		t.Error("a zombie is left")
	}
}

func TestExitStatusAndLastWords(t *testing.T) {
	for _, test := range []struct{ do, status, stderr string }{
		{"exit/7", "exit status 7", "these are my last words"},
		{"panic/boom", "exit status 2", "panic in a handler: boom"},
	} {
		t.Run(test.do, func(t *testing.T) {
			p := start(t, testConfig(t, faults.Good))
			if _, err := do(t.Context(), p, test.do); status.Code(err) != codes.Unavailable {
				t.Errorf("the call: %v", err)
			}
			<-p.Finished()
			if p.ExitStatus() != test.status || !strings.Contains(strings.Join(p.Stderr(), "\n"), test.stderr) {
				t.Errorf("%s, %q", p.ExitStatus(), p.Stderr())
			}
		})
	}
}

// A child that holds the plugin's stderr hides neither its end nor its stop.
func TestGrandchildHoldsStderr(t *testing.T) {
	for _, end := range []string{"exit", "stop"} {
		t.Run(end, func(t *testing.T) {
			p := start(t, testConfig(t, faults.Good))
			child := atoi(t, mustDo(t, p, "hold-stderr"))
			within(t, soon, "the end", func() { // 200 ms
				if end == "exit" {
					_, _ = do(t.Context(), p, "exit/0")
				} else {
					p.Kill("for the test")
				}
				<-p.Exited()
				<-p.Finished()
			})
			poll(t, "the group is empty", func() bool {
				return gone(child) && errors.Is(syscall.Kill(-p.PID(), 0), syscall.ESRCH)
			})
		})
	}
}

// One that left the group and writes there for ever does not either.
func TestEscapedGrandchildWritesStderr(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	child := atoi(t, mustDo(t, p, "write-stderr"))
	defer func() { _ = syscall.Kill(-child, syscall.SIGKILL) }()
	poll(t, "it writes", func() bool { return len(p.Stderr()) > 0 })
	within(t, soon, "the end", func() {
		p.Kill("for the test")
		<-p.Exited()
		<-p.Finished()
	})
}

// The thread that made the child may not end before it: Linux would kill the
// child with it.
func TestPluginOutlivesThreads(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	// A goroutine that ends with its thread locked ends the thread.
	for range 30 {
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				runtime.LockOSThread()
				_, _ = os.Stat("/") // in the kernel, so that others get threads too
			})
		}
		all.Wait()
		if got := mustDo(t, p, "ping"); got != "pong" {
			t.Errorf("ping: %q", got)
		}
	}
}

// A process that is given up while it is just being started is killed as soon as
// it is there.
func TestKillDuringTheStart(t *testing.T) {
	cfg := testConfig(t, faults.Silent)
	cfg.Logger = hclog.NewNullLogger()
	folder, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(cfg, folder)
	p.Kill("too late")
	if err := p.start(t.Context(), cfg, cfg.Env); err != nil {
		t.Fatal(err)
	}
	poll(t, "its end", func() bool {
		select {
		case <-p.Finished():
			return true
		default:
			return false
		}
	})
	p.pump.close()
	if p.Reason() != "too late" || !gone(p.PID()) {
		t.Errorf("%q, pid %d", p.Reason(), p.PID())
	}
}

func TestManyEnds(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	done := make(chan error)
	for range 10 {
		go func() { done <- p.Stop(t.Context()) }()
		go func() { p.Kill("again"); done <- p.Close() }()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
