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

// Context ends before the clean-ups.
func (r *recorder) Context() context.Context { return r.ctx }

// Name is the check's.
func (r *recorder) Name() string { return r.name }

// Helper does nothing: no line is told.
func (r *recorder) Helper() {}

// Cleanup is called after the check, the last one first.
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Fail notes a failure.
func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Failed tells whether one was noted.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// FailNow notes a failure and ends the check.
func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

// Log keeps a line.
func (r *recorder) Log(args ...any) { r.say(fmt.Sprintln(args...)) }

// Logf keeps a line.
func (r *recorder) Logf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }

// Error is Log and Fail.
func (r *recorder) Error(args ...any) { r.Log(args...); r.Fail() }

// Errorf is Logf and Fail.
func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.Fail()
}

// Fatal is Log and FailNow.
func (r *recorder) Fatal(args ...any) { r.Log(args...); r.FailNow() }

// Fatalf is Logf and FailNow.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}
