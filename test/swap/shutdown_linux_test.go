package swap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestShutdownInMidSwap waits for what the old one and those that are leaving have,
// and gives the swap up.
func TestShutdownInMidSwap(t *testing.T) {
	for _, plugin := range []string{plain, lasting} {
		t.Run(plugin, func(t *testing.T) {
			b := newBed(t, plugin)
			ws := b.workspace(t)
			if err := ws.WriteFile(t.Context(), "f", nil); err != nil {
				t.Fatal(err)
			}
			const runs = 4
			results := make(chan error, runs)
			start := func() {
				p, err := ws.Start(t.Context(), workspace.Command{Script: "echo ran >> runs; sleep 0.7; echo done"})
				if err != nil {
					t.Error(err)
					results <- err
					return
				}
				go func() {
					res, err := p.Wait()
					if err == nil && string(res.Stdout) != "done\n" {
						err = fmt.Errorf("%q", res.Stdout)
					}
					results <- err
				}()
			}
			start()
			start()
			b.swap(t, versionB)
			start()
			start()
			b.install(t, hangs)
			reloaded := make(chan error, 1)
			go func() { reloaded <- b.Reload(t.Context(), plugin) }()
			poll(t, "the second swap", func() bool { // what the first left may be told after it
				swaps := 0
				for _, kind := range b.kinds(t) {
					if kind == "swap" {
						swaps++
					}
				}
				return swaps == 2
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := b.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			for range runs {
				if err := <-results; err != nil {
					t.Errorf("a command that was to be waited for: %v", err)
				}
			}
			if err := <-reloaded; !errors.Is(err, fs.ErrClosed) {
				t.Errorf("the swap: %v", err)
			}
			if left := children(t, plugin, b.dir); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			if err := b.Reload(t.Context(), plugin); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("a swap after it: %v", err)
			}
		})
	}
}

// TestKillsInMidSwap: whichever process dies when, runs that can be attached go on,
// others fail with a typed error, and no command runs twice.
func TestKillsInMidSwap(t *testing.T) {
	for _, plugin := range []string{plain, lasting} {
		t.Run(plugin, func(t *testing.T) {
			b := newBed(t, plugin)
			ws := b.workspace(t)
			if err := ws.WriteFile(t.Context(), "ran", nil); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var work sync.WaitGroup
			var mu sync.Mutex
			var acknowledged []string
			for caller := range 8 {
				work.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						id := fmt.Sprintf("%d-%d", caller, n)
						res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"sh", "-c", `echo "$1" >> ran; sleep 0.1`, "sh", id}})
						var plug *workspace.PluginError
						switch {
						case err == nil && res.ExitCode == 0:
							mu.Lock()
							acknowledged = append(acknowledged, id)
							mu.Unlock()
						case !errors.As(err, &plug):
							t.Errorf("%s: %+v, %T %v", id, res, err, err)
						}
					}
				})
			}
			for i := range 12 {
				b.install(t, []string{versionB, versionA}[i%2])
				reloaded := make(chan error, 1)
				go func() { reloaded <- b.Reload(t.Context(), plugin) }()
				old := b.status().PID
				if i%3 == 2 { // after the swap, at once
					<-reloaded
					reloaded <- nil
				}
				// The newest of them is the one that is being started, if it is there.
				pids := children(t, plugin, b.dir)
				switch {
				case i%2 == 0 && old != 0:
					kill(t, old)
				case len(pids) > 0:
					kill(t, slices.Max(pids))
				}
				<-reloaded // whatever came of it
				poll(t, "it to serve", func() bool {
					_, err := b.Check(t.Context(), plugin)
					return err == nil
				})
			}
			close(stop)
			work.Wait()
			b.alone(t)
			ran, err := ws.ReadFile(t.Context(), "ran")
			if err != nil {
				t.Fatal(err)
			}
			atMostOnce(t, ran, acknowledged)
		})
	}
}
