package session_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

func testHibernate(t *testing.T, b bed) {
	m := b.manager(t, evict(100*time.Millisecond))
	other := b.manager(t, evict(100*time.Millisecond))
	open(t, m, session.OpenRequest{ID: "a"})
	output(t, m, "a", "printf kept >f")
	asleep := func() bool {
		info, err := other.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return info.State == session.Hibernated
	}
	eventually(t, "it sleeps", asleep)
	if n := b.resident(t); n != 0 {
		t.Errorf("%d run", n)
	}
	if infos, err := other.List(t.Context()); err != nil || len(infos) != 1 || infos[0].Alive {
		t.Errorf("listed: %+v, %v", infos, err)
	}
	if got := output(t, other, "a", "cat f"); got != "kept" {
		t.Errorf("woken by another gateway: %q", got)
	}
	if got := output(t, m, "a", "cat f"); got != "kept" {
		t.Errorf("by the first one: %q", got)
	}
	eventually(t, "it sleeps again", asleep)
	_, token, err := m.Open(t.Context(), session.OpenRequest{ID: "a", Reuse: true})
	if err != nil || m.Authorize(t.Context(), token, "a") != nil {
		t.Errorf("woken by an open: %v", err)
	}
}

// A session is put to sleep whenever it may be, while others use it: no use is ever
// over a workspace that is stopped.
func testHibernateRace(t *testing.T, b bed) {
	fast := func(c *session.Config) { c.Timing.Sweep, c.Timing.Poll = time.Millisecond, time.Millisecond }
	managers := []*session.Manager{b.manager(t, evict(0), fast), b.manager(t, evict(0), fast)}
	for _, id := range []string{"a", "b"} {
		open(t, managers[0], session.OpenRequest{ID: id})
	}
	var inUse sync.Map // workspace id → *atomic.Int64
	b.set(func(f *folders) {
		f.onStop = func(_ context.Context, id string) error {
			if n, ok := inUse.Load(id); ok && n.(*atomic.Int64).Load() > 0 {
				t.Errorf("%s is stopped under %d uses", id, n.(*atomic.Int64).Load())
			}
			return nil
		}
	})
	begun := time.Now()
	goOn := func() bool {
		return time.Since(begun) < 6*time.Second || b.stops.Load() < 10 && time.Since(begun) < time.Minute
	}
	var uses atomic.Int64
	together(4, func(worker int) {
		rng := rand.New(rand.NewPCG(2, uint64(worker)))
		m := managers[worker%2]
		for goOn() {
			// One that two gateways use is not put to sleep for the time of a lease: most
			// are used by one, which may stop it at any moment.
			id := []string{"a", "b"}[worker%2]
			if rng.IntN(100) == 0 {
				id = []string{"b", "a"}[worker%2]
			}
			u, err := m.Acquire(t.Context(), id)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			ref, _ := u.Workspace.Ref()
			count, _ := inUse.LoadOrStore(ref.ID, new(atomic.Int64))
			count.(*atomic.Int64).Add(1)
			if b.stopped(ref.ID) {
				t.Errorf("%s is used although it is stopped", ref.ID)
			}
			if _, err := u.Workspace.Stat(t.Context(), "."); err != nil {
				t.Errorf("%v", err)
			}
			count.(*atomic.Int64).Add(-1)
			u.Release()
			uses.Add(1)
			// Mostly at once; now and then after so long that it sleeps.
			if rng.IntN(50) > 0 {
				time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
			} else {
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
		}
	})
	if b.stops.Load() == 0 {
		t.Errorf("nothing was ever put to sleep in %d uses", uses.Load())
	}
	t.Logf("%d uses, %d stops", uses.Load(), b.stops.Load())
}

func testLongUse(t *testing.T, b bed) {
	m := b.manager(t, evict(0))
	other := b.manager(t, evict(0), func(c *session.Config) {
		idle := time.Millisecond
		c.Policy.IdleTimeout = &idle
	})
	open(t, m, session.OpenRequest{ID: "a"})
	u, err := m.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	before := b.stops.Load() // it may have been put to sleep before, and was woken
	// More than twice as long as its lease.
	if _, err := u.Workspace.Run(t.Context(), workspace.Command{Args: []string{"sleep", "5"}}); err != nil {
		t.Errorf("%v", err)
	}
	info, err := other.Get(t.Context(), "a")
	if err != nil || info.State != session.Running || b.stops.Load() != before {
		t.Errorf("%+v, %v, stopped %d times, and %d before it was used", info, err, b.stops.Load(), before)
	}
	u.Release()
	eventually(t, "it is closed for being idle", func() bool {
		_, err := other.Get(t.Context(), "a")
		return err != nil && kind(t, err) == session.NotFound
	})
}

func testWakeFails(t *testing.T, b bed) {
	m := b.manager(t, evict(0))
	open(t, m, session.OpenRequest{ID: "a"})
	eventually(t, "it sleeps", func() bool {
		info, err := m.Get(t.Context(), "a")
		return err == nil && info.State == session.Hibernated
	})
	b.set(func(f *folders) { f.onStart = func(context.Context, string) error { return workspace.ErrTransient } })
	_, err := m.Acquire(t.Context(), "a")
	wantKind(t, "a wake without its provider", err, session.Transient)
	if info, err := m.Get(t.Context(), "a"); err != nil || info.State != session.Hibernated {
		t.Errorf("%+v, %v", info, err)
	}
	b.set(func(f *folders) { f.onStart = nil })
	output(t, m, "a", "true")
}

func testStopFails(t *testing.T, b bed) {
	var tries atomic.Int64
	b.set(func(f *folders) {
		f.onStop = func(context.Context, string) error {
			if tries.Add(1) == 1 {
				return workspace.ErrTransient
			}
			return nil
		}
	})
	m := b.manager(t, evict(0))
	open(t, m, session.OpenRequest{ID: "a"})
	eventually(t, "it sleeps at the second try", func() bool {
		info, err := m.Get(t.Context(), "a")
		return err == nil && info.State == session.Hibernated
	})
	if tries.Load() < 2 {
		t.Errorf("%d tries", tries.Load())
	}
	output(t, m, "a", "true")
}
