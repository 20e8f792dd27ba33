//go:build unix

package runtimes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLockIsHeldByOne(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where other systems have the cache
	const callers = 20
	unlock, err := lock(t.Context(), "key", func() { t.Error("waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	var all, waiting sync.WaitGroup
	var inside atomic.Int32
	waiting.Add(callers)
	for range callers {
		all.Go(func() {
			unlock, err := lock(t.Context(), "key", waiting.Done) // which panics if called twice
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two hold the lock at once")
			}
			other, err := lock(t.Context(), "other key", func() { t.Error("waits for another key") })
			if err != nil {
				t.Error(err)
			}
			other()
			inside.Add(-1)
			unlock()
		})
	}
	waiting.Wait()
	unlock()
	all.Wait()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(cache, "berth", "builds")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestLockEndsWithTheContext(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	unlock, err := lock(t.Context(), "key", func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := lock(ctx, "key", cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// Where there is no place for a lock, there is no lock, and the build goes on.
func TestNoPlaceForALock(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
	t.Setenv("HOME", "/dev/null/nowhere")
	unlock, err := lock(t.Context(), "key", func() { t.Error("waits") })
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
