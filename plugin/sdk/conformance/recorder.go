package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that keeps to itself what a check says: for
// deviations, and for the mutants on which a check must fail.
type recorder struct {
	testing.TB // for TempDir, Setenv and whatever else does not judge

	name   string
	ctx    context.Context //nolint:containedctx // as in testing.T, whose part it plays
	cancel context.CancelFunc

	mu       sync.Mutex
	lines    []string
	failed   bool
	cleanups []func()
}

// record runs f to its end, clean-ups included.
func record(outer testing.TB, name string, f func(testing.TB)) *recorder {
	ctx, cancel := context.WithCancel(outer.Context())
	r := &recorder{TB: outer, name: name, ctx: ctx, cancel: cancel}
	r.guard(func() { f(r) })
	cancel()
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return r
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.guard(last)
	}
}

// guard runs f in a goroutine that FailNow may end, and makes a panic a
// failure.
func (r *recorder) guard(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, strings.TrimSuffix(s, "\n"))
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Helper()                  {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Log(args ...any)                 { r.say(fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)               { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.Fail()
}
func (r *recorder) Fatal(args ...any) { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}
