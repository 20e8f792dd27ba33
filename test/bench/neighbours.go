package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/bench/internal/timing"
	"github.com/berth-dev/berth/test/faults"
)

// The two providers of the host: the one whose calls are measured, and the one that
// misbehaves meanwhile.
const (
	calm = "state"
	bad  = "bad"
)

// neighbour is a way to misbehave.
type neighbour struct {
	name string
	// begin brings it about; end takes it back and waits.
	begin func(ctx context.Context, h *host.Host, ws workspace.Workspace) (end func() error, err error)
}

func neighbourRows() []neighbour {
	return []neighbour{
		{"an idle one", func(context.Context, *host.Host, workspace.Workspace) (func() error, error) {
			return func() error { return nil }, nil
		}},
		{"dies at each call", repeating("exit/1")},
		{"floods its log", repeating("flood-stderr/10000/200")},
		{"floods its stdout", repeating("flood-stdout/10000/200")},
		{"never answers 20 calls", func(ctx context.Context, h *host.Host, ws workspace.Workspace) (func() error, error) {
			return hanging(ctx, h, ws)
		}},
		{"is frozen (SIGSTOP) in 20 calls", func(ctx context.Context, h *host.Host, ws workspace.Workspace) (func() error, error) {
			end, err := hanging(ctx, h, ws)
			if err != nil {
				return nil, err
			}
			pid := pidOf(h, bad)
			if err := proc.Stop(pid); err != nil {
				return nil, errors.Join(err, end())
			}
			return func() error {
				if now := pidOf(h, bad); now != pid {
					return errors.Join(fmt.Errorf("the frozen plugin, pid %d, was replaced by pid %d meanwhile", pid, now), end())
				}
				return errors.Join(proc.Continue(pid), end())
			}, nil
		}},
		{"is swapped again and again", swapping(bad)},
		{itself, swapping(calm)},
	}
}

// itself is of the provider whose calls are measured, and of no neighbour.
const itself = "idle, while this one is swapped again and again"

// swapping replaces a provider's plugin as fast as new ones come up.
func swapping(provider string) func(context.Context, *host.Host, workspace.Workspace) (func() error, error) {
	return func(ctx context.Context, h *host.Host, _ workspace.Workspace) (func() error, error) {
		ctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		var err error
		work.Go(func() {
			for err == nil && ctx.Err() == nil {
				if err = h.Reload(ctx, provider); ctx.Err() != nil {
					err = nil // it was given up
				}
			}
		})
		return func() error { cancel(); work.Wait(); return err }, nil
	}
}

// repeating makes a plugin do something again and again.
func repeating(what string) func(context.Context, *host.Host, workspace.Workspace) (func() error, error) {
	return func(ctx context.Context, _ *host.Host, ws workspace.Workspace) (func() error, error) {
		ctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() {
			for ctx.Err() == nil {
				_ = ws.MkdirAll(ctx, "/"+what)
			}
		})
		return func() error { cancel(); work.Wait(); return nil }, nil
	}
}

// hanging makes calls that do not come back.
func hanging(ctx context.Context, h *host.Host, ws workspace.Workspace) (end func() error, err error) {
	const calls = 20
	if _, err := ws.WorkingDir(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	for range calls {
		work.Go(func() { _ = ws.MkdirAll(ctx, "/sleep/1h") })
	}
	end = func() error { cancel(); work.Wait(); return nil }
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		for _, st := range h.Providers() {
			if st.Name == bad && st.InFlight == calls {
				return end, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(errors.New("the calls that are to hang are not under way"), end())
		}
	}
}

func pidOf(h *host.Host, provider string) int {
	for _, st := range h.Providers() {
		if st.Name == provider {
			return st.PID
		}
	}
	return 0
}

// neighbours measures a small call of one provider while another one of the same host
// misbehaves, in turns with the same call while that one is quiet.
func neighbours(ctx context.Context, out io.Writer, bin, dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	plugins, err := faults.Build(dir)
	if err != nil {
		return err
	}
	h, err := host.New(host.Config{
		PluginDirs: []string{bin, plugins.Dir}, DataDir: dir,
		Providers: map[string]host.Provider{calm: {}, bad: {Plugin: faults.Good, Budget: host.Budget{Restarts: host.UnlimitedRestarts}}},
		// As a program does that keeps its log.
		Logger:    hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: io.Discard, JSONFormat: true}),
		Deadlines: host.Deadlines{Liveness: time.Hour}, // what is frozen stays so
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	ws, err := h.Workspace(calm)
	if err != nil {
		return err
	}
	if err := ws.WriteFile(ctx, "f", []byte("x")); err != nil {
		return err
	}
	other, err := h.Workspace(bad)
	if err != nil {
		return err
	}
	stat := plain(func() error { _, err := ws.Stat(ctx, "f"); return err })
	fmt.Fprintln(out, "| the other provider | p50 | p99 | p99, the other quiet | ratio of the p99 | aim |\n|---|---|---|---|---|---|")
	for _, row := range neighbourRows() {
		t, err := takeTurns(stat, func() (func() error, error) { return row.begin(ctx, h, other) })
		if err != nil {
			return fmt.Errorf("a neighbour that %s: %w", row.name, err)
		}
		const aim = 2
		told := strconv.Itoa(aim)
		switch {
		case row.name == itself:
			told = "–"
		case t.ratio > aim:
			told += ", **missed**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %.1f | %s |\n", row.name, timing.Text(t.p50), timing.Text(t.p99), timing.Text(t.quiet), t.ratio, told)
	}
	return nil
}

// turn is what a pair of blocks of calls came to, the first one quiet; or the median of
// each of that over all pairs, so that one bad moment of the machine spoils none.
type turn struct {
	p50, p99, quiet time.Duration
	ratio           float64 // of the p99
}

// takeTurns measures work in turns without and with something that is begun and ended.
func takeTurns(do work, begin func() (func() error, error)) (turn, error) {
	const pairs, calls = 9, 1000
	var p50, p99, quiet timing.Samples
	var ratios []float64
	for range pairs {
		without, err := measure(calls, do)
		if err != nil {
			return turn{}, err
		}
		end, err := begin()
		if err != nil {
			return turn{}, err
		}
		with, err := measure(calls, do)
		if err = errors.Join(err, end()); err != nil {
			return turn{}, err
		}
		p50, p99, quiet = append(p50, with.At(50)), append(p99, with.At(99)), append(quiet, without.At(99))
		ratios = append(ratios, float64(with.At(99))/float64(without.At(99)))
	}
	for _, s := range []timing.Samples{p50, p99, quiet} {
		slices.Sort(s)
	}
	slices.Sort(ratios)
	return turn{p50: p50.At(50), p99: p99.At(50), quiet: quiet.At(50), ratio: ratios[pairs/2]}, nil
}
