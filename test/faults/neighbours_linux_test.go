package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// Names of the two providers of a host in these tests.
const (
	calm = "calm"
	bad  = "bad"
)

// disturbance is what one provider does while the other one works.
type disturbance struct {
	name   string
	plugin string
	// begin brings it about, until ctx ends, on a workspace that is not open yet. What
	// it returns reports whether it has gone on since then.
	begin func(ctx context.Context, t *testing.T, d *disturbed) (goesOn func() bool)
}

// disturbed is a host with a provider that misbehaves.
type disturbed struct {
	host *host.Host
	ws   workspace.Workspace
	work sync.WaitGroup // what a disturbance leaves running until the host is closed
}

// pend makes calls that do not come back, and returns how many have.
func (d *disturbed) pend(ctx context.Context, t *testing.T, what string) (back *atomic.Int64) {
	t.Helper()
	const calls = 10
	back = new(atomic.Int64)
	for range calls {
		d.work.Go(func() {
			_ = order(ctx, d.ws, what)
			back.Add(1)
		})
	}
	poll(t, "its calls are under way", func() bool { return status(t, d.host, bad).InFlight == calls })
	return back
}

// repeat makes the plugin do something again and again, and returns how often it has.
func (d *disturbed) repeat(ctx context.Context, what string) (times *atomic.Int64) {
	times = new(atomic.Int64)
	d.work.Go(func() {
		for ctx.Err() == nil {
			_ = order(ctx, d.ws, what)
			times.Add(1)
		}
	})
	return times
}

func disturbances() []disturbance {
	return []disturbance{
		{"is frozen", faults.Lifeline, func(ctx context.Context, t *testing.T, d *disturbed) func() bool {
			if _, err := d.ws.WorkingDir(ctx); err != nil {
				t.Fatal(err)
			}
			back := d.pend(ctx, t, "sleep/1h")
			pid := status(t, d.host, bad).PID
			faults.Freeze(t, pid)
			return func() bool { return back.Load() == 0 && status(t, d.host, bad).PID == pid }
		}},
		{"never answers", faults.Lifeline, func(ctx context.Context, t *testing.T, d *disturbed) func() bool {
			if _, err := d.ws.WorkingDir(ctx); err != nil {
				t.Fatal(err)
			}
			back := d.pend(ctx, t, "sleep/1h")
			return func() bool { return back.Load() == 0 }
		}},
		{"never starts", faults.Silent, func(ctx context.Context, t *testing.T, d *disturbed) func() bool {
			var back atomic.Int64
			d.work.Go(func() {
				_, _ = d.ws.WorkingDir(ctx)
				back.Add(1)
			})
			poll(t, "it is starting", func() bool { return len(faults.Running(t, plugins.Path(faults.Silent))) > 0 })
			return func() bool { return back.Load() == 0 && status(t, d.host, bad).State == "starting" }
		}},
		{"keeps dying", faults.Lifeline, func(ctx context.Context, t *testing.T, d *disturbed) func() bool {
			times := d.repeat(ctx, "exit/1")
			return func() bool { return times.Load() >= 4 }
		}},
		{"does not start again and again", faults.Exit7, func(ctx context.Context, _ *testing.T, d *disturbed) func() bool {
			times := d.repeat(ctx, "ping")
			return func() bool { return times.Load() >= 4 }
		}},
		{"floods its log", faults.Lifeline, func(ctx context.Context, _ *testing.T, d *disturbed) func() bool {
			times := d.repeat(ctx, "flood-stderr/10000/500")
			return func() bool { return times.Load() >= 4 }
		}},
		{"floods its stdout", faults.Lifeline, func(ctx context.Context, _ *testing.T, d *disturbed) func() bool {
			times := d.repeat(ctx, "flood-stdout/10000/500")
			return func() bool { return times.Load() >= 4 }
		}},
		{"answers more than it may", faults.Lifeline, func(ctx context.Context, _ *testing.T, d *disturbed) func() bool {
			times := d.repeat(ctx, "big/20000000")
			return func() bool { return times.Load() >= 4 }
		}},
	}
}

// Whatever one provider does, another one's calls succeed, in the very time in which
// it does it: they wait for nothing of the other's (contract B1).
func TestOneProviderNeverDelaysAnother(t *testing.T) {
	for _, dist := range disturbances() {
		t.Run(dist.name, func(t *testing.T) {
			// The log takes nothing meanwhile either.
			log := sink{blocked: make(chan struct{})}
			h := newHost(t, nil, log.configure, func(c *host.Config) {
				c.Providers = map[string]host.Provider{calm: {Plugin: faults.Good}, bad: {Plugin: dist.plugin, StartTimeout: time.Hour}}
				c.Deadlines.Liveness = time.Hour // what is frozen stays so
			})
			ctx, cancel := context.WithCancel(t.Context())
			ws, err := h.Workspace(bad)
			if err != nil {
				t.Fatal(err)
			}
			d := &disturbed{host: h, ws: ws}
			defer d.work.Wait()
			defer close(log.blocked)
			defer cancel()
			quiet := open(t, h, calm)
			goesOn := dist.begin(ctx, t, d)

			const workers, calls = 4, 50
			for round, until := 0, time.Now().Add(patience); round == 0 || !goesOn(); round++ {
				var all sync.WaitGroup
				for worker := range workers {
					all.Go(func() {
						if err := use(t.Context(), h, quiet, fmt.Sprintf("w-%d-%d", round, worker), calls); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if t.Failed() {
					return
				}
				if time.Now().After(until) {
					t.Fatalf("after %d calls the other one has not begun to misbehave, or has come to an end", round*workers*calls)
				}
			}
		})
	}
}

// use opens a workspace of its own, and makes calls on it and on a shared one.
func use(ctx context.Context, h *host.Host, shared workspace.Workspace, name string, calls int) error {
	own, err := h.Workspace(calm, workspace.WithName(name))
	if err != nil {
		return err
	}
	for range calls {
		for _, ws := range []workspace.Workspace{shared, own} {
			if answer, err := ask(ctx, ws, "ping"); err != nil || answer != "pong" {
				return fmt.Errorf("ping: %q, %w", answer, err)
			}
		}
		if err := order(ctx, own, "ping"); err != nil {
			return err
		}
		for _, st := range h.Providers() {
			if st.Name == calm && st.Restarts > 0 {
				return fmt.Errorf("the calm one was started again: %s", st.LastError)
			}
		}
	}
	return nil
}
