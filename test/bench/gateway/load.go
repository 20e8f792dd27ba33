package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// load is many sessions of the gateway, used by some callers at once.
type load struct {
	sessions, callers int
	duration          time.Duration
}

// settled is how long it takes until all that is kept between calls is there: memory
// is compared with that after it.
const settled = 10 * time.Second

// loadKinds are what is done in each session in turns.
var loadKinds = []string{"run", "write 4 KiB", "stat", "read 4 KiB", "list"}

// endured is what came of a load.
type endured struct {
	load
	kinds  map[string]timing.Samples // also "open" and "purge"
	took   time.Duration
	failed error
	memory []memory
}

// memory is what two processes hold at a time, in bytes.
type memory struct {
	when            string
	gateway, plugin int64
}

// loaded is a session under load. One call is made in it at a time.
type loaded struct {
	*session
	mu    sync.Mutex
	calls int
}

// recorder takes what many callers measured.
type recorder struct {
	mu    sync.Mutex
	kinds map[string]timing.Samples
}

func (r *recorder) timed(kind string, do func() error) error {
	begin := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	took := time.Since(begin)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[kind] = append(r.kinds[kind], took)
	return nil
}

// endure opens the sessions, uses them, and purges them.
func (b *bench) endure(ctx context.Context, l load) (e *endured, err error) {
	e = &endured{load: l}
	r := &recorder{kinds: map[string]timing.Samples{}}
	plugin := b.berth.pluginPID()
	e.remember(b, "before")
	sessions, err := b.openLoaded(ctx, l, r)
	defer func() {
		err = errors.Join(err, purgeLoaded(context.WithoutCancel(ctx), l, r, sessions))
		e.remember(b, "all purged")
		for kind := range r.kinds {
			slices.Sort(r.kinds[kind])
		}
		e.kinds = r.kinds
	}()
	if err != nil {
		return e, err
	}
	e.remember(b, "sessions open")
	begin := time.Now()
	e.failed = b.useLoaded(ctx, l, r, sessions, func() { e.remember(b, "after "+min(settled, l.duration/2).String()) })
	e.took = time.Since(begin)
	e.remember(b, "at the end")
	if now := b.berth.pluginPID(); now != plugin {
		e.failed = errors.Join(e.failed, errors.New("the plugin has been started anew"))
	}
	return e, ctx.Err()
}

func (e *endured) remember(b *bench, when string) {
	e.memory = append(e.memory, memory{when, proc.Memory(b.berth.cmd.Process.Pid, "VmRSS"), proc.Memory(b.berth.pluginPID(), "VmRSS")})
}

// openLoaded opens sessions. It returns those that it has also with an error.
func (b *bench) openLoaded(ctx context.Context, l load, r *recorder) (sessions []*loaded, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(l.callers)
	for range l.sessions {
		group.Go(func() error {
			return r.timed("open", func() error {
				s, err := b.berth.open(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				sessions = append(sessions, &loaded{session: s})
				return nil
			})
		})
	}
	err = group.Wait()
	return sessions, err
}

func purgeLoaded(ctx context.Context, l load, r *recorder, sessions []*loaded) error {
	var group errgroup.Group
	group.SetLimit(l.callers)
	for _, s := range sessions {
		group.Go(func() error { return r.timed("purge", func() error { return s.purge(ctx) }) })
	}
	return group.Wait()
}

// useLoaded has callers take sessions in turns until the time is over. The first error
// of each caller ends it.
func (b *bench) useLoaded(ctx context.Context, l load, r *recorder, sessions []*loaded, settle func()) error {
	var next atomic.Int64
	deadline := time.Now().Add(l.duration)
	errs := make([]error, l.callers)
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(min(settled, l.duration/2))
		defer timer.Stop()
		select {
		case <-timer.C:
			settle()
		case <-ctx.Done():
		}
	})
	for i := range l.callers {
		wg.Go(func() {
			for errs[i] == nil && time.Now().Before(deadline) {
				errs[i] = sessions[int(next.Add(1))%len(sessions)].next(ctx, r)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// next makes the next call in a session.
func (s *loaded) next(ctx context.Context, r *recorder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := loadKinds[s.calls%len(loadKinds)]
	s.calls++
	// What nobody else's file holds.
	data := []byte(strings.Repeat(s.id+"\n", 4<<10/(len(s.id)+1)))
	return r.timed(kind, func() error {
		switch kind {
		case "run":
			out, err := s.run(ctx, "echo", s.id)
			if err == nil && out != s.id+"\n" {
				err = fmt.Errorf("said %q, want %q", out, s.id)
			}
			return err
		case "write 4 KiB":
			return s.write(ctx, "mine", data)
		case "stat":
			return s.stat(ctx, "mine", len(data))
		case "read 4 KiB":
			return s.read(ctx, "mine", data)
		default:
			return s.list(ctx, ".", 1)
		}
	})
}

// print prints it as Markdown.
func (e *endured) print(out io.Writer) {
	calls := 0
	for _, kind := range loadKinds {
		calls += len(e.kinds[kind])
	}
	fmt.Fprintf(out, "\nUnder load: %d sessions of the gateway, %d callers for %v; %d calls, %.0f a second", e.sessions, e.callers, e.duration, calls, float64(calls)/e.took.Seconds())
	if e.failed == nil {
		fmt.Fprint(out, ", no error")
	}
	fmt.Fprint(out, ".\n\n| call | calls | p50 | p99 |\n|---|---|---|---|\n")
	for _, kind := range append(append([]string{"open"}, loadKinds...), "purge") {
		if s := e.kinds[kind]; len(s) > 0 {
			fmt.Fprintf(out, "| %s | %d | %s | %s |\n", kind, len(s), timing.Text(s.At(50)), timing.Text(s.At(99)))
		}
	}
	fmt.Fprint(out, "\n| resident memory | gateway | plugin |\n|---|---|---|\n")
	for _, m := range e.memory {
		fmt.Fprintf(out, "| %s | %d MiB | %d MiB |\n", m.when, m.gateway>>20, m.plugin>>20)
	}
	if e.failed != nil {
		fmt.Fprintf(out, "\n**Failed:** %v\n", e.failed)
	}
}
