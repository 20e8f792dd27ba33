package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/test/faults"
)

// While other bytes take a locked plugin's place again and again, renamed into it and
// written into it, those are never run, not even for an instant.
func TestBytesThatWereNotCheckedNeverRun(t *testing.T) {
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	good, err := os.ReadFile(plugins.Path(faults.Good))
	if err != nil {
		t.Fatal(err)
	}
	other := []byte("#!/bin/sh\ntouch " + ran + "\nexit 1\n")
	path := filepath.Join(dir, filepath.Base(plugins.Path(faults.Good)))
	if err := os.WriteFile(path, good, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, host.LockFileName)
	if err := os.WriteFile(file, []byte("format: 1\nplugins: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := host.ReadLock(file)
	if err != nil {
		t.Fatal(err)
	}
	config := host.Config{
		PluginDirs: []string{dir}, Dir: t.TempDir(), DataDir: t.TempDir(), CacheDir: t.TempDir(), Lock: lock,
		Providers: map[string]host.Provider{faults.Good: {}},
	}
	locking := newHost(t, nil, func(c *host.Config) { *c = config })
	if _, err := locking.LockPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The other bytes do run where nothing is locked.
	if err := replace(path, other); err != nil {
		t.Fatal(err)
	}
	unlocked := newHost(t, nil, func(c *host.Config) { *c = config; c.Lock = nil })
	if _, err := unlocked.Check(t.Context(), faults.Good); err == nil {
		t.Error("a script served")
	}
	if err := os.Remove(ran); err != nil {
		t.Fatalf("this test shows nothing: %v", err)
	}

	const swaps, starters = 1000, 3
	var started, refused atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range starters {
		all.Go(func() {
			for ctx.Err() == nil {
				switch err := startOnce(t.Context(), config); {
				case err == nil:
					started.Add(1)
				case strings.Contains(err.Error(), "lock"):
					refused.Add(1)
					time.Sleep(time.Millisecond) // at once would be all that this machine does
				case strings.Contains(err.Error(), path), errors.Is(err, fs.ErrNotExist): // it was just being written
				default:
					t.Errorf("start: %v", err)
					return
				}
			}
		})
	}
	const rewrites = 40 // one in so many: a copy is of 20 MB
	for n := 0; n < swaps || started.Load() < 20 || refused.Load() < 20; n++ {
		var err error
		switch {
		case n%rewrites == rewrites-2:
			err = replace(path, good)
		case n%rewrites == rewrites-1:
			err = overwrite(path, other)
		case n%2 == 0:
			err = errors.Join(os.Link(plugins.Path(faults.Good), path+".new"), os.Rename(path+".new", path))
		default:
			err = replace(path, other)
		}
		if err != nil {
			t.Error(err)
			break
		}
		if n > 100*swaps {
			t.Errorf("after %d swaps %d starts and %d refusals", n, started.Load(), refused.Load())
			break
		}
		time.Sleep(time.Duration(n%4) * time.Millisecond) // the moment is what varies
	}
	cancel()
	all.Wait()
	t.Logf("%d starts, %d refusals", started.Load(), refused.Load())
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("other bytes than the locked ones were run (%v)", err)
	}
}

// replace renames a file of these bytes into place.
func replace(path string, bytes []byte) error {
	if err := os.WriteFile(path+".new", bytes, 0o755); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// overwrite writes them into the file that is there.
func overwrite(path string, bytes []byte) error {
	err := os.WriteFile(path, bytes, 0o755)
	if err != nil && strings.Contains(err.Error(), "text file busy") {
		return nil // the kernel's own protection
	}
	return err
}

// startOnce starts the plugin in a host of its own and ends it.
func startOnce(ctx context.Context, config host.Config) (err error) {
	h, err := host.New(config)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := h.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", closeErr))
		}
	}()
	_, err = h.Check(ctx, faults.Good)
	return err
}
