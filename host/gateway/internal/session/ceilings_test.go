package session_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

func testCeilings(t *testing.T, b bed) {
	sessions, opened, tenant := 4, 6, 3
	var now, most atomic.Int64
	b.set(func(f *folders) {
		f.onMade = func(ctx context.Context, _ string) error {
			n := int64(f.resident(t))
			now.Store(n)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return pause(ctx, 5*time.Millisecond)
		}
	})
	limit := func(c *session.Config) {
		c.Policy.MaxSessions, c.Policy.MaxOpenSessions, c.Policy.MaxSessionsPerTenant = &sessions, &opened, &tenant
	}
	managers := []*session.Manager{b.manager(t, limit), b.manager(t, limit)}
	var refused atomic.Int64
	together(8, func(worker int) {
		m := managers[worker%2]
		for i := range 6 {
			info, _, err := m.Open(t.Context(), session.OpenRequest{ID: fmt.Sprintf("s-%d-%d", worker, i), Tenant: []string{"", "one", "two"}[i%3]})
			switch kind(t, err) {
			case "":
			case session.Ceiling:
				refused.Add(1)
				continue
			default:
				t.Errorf("%v", err)
				return
			}
			counts, err := m.Count(t.Context())
			if err != nil || counts.Resident > sessions || counts.Open > opened {
				t.Errorf("%+v, %v", counts, err)
			}
			if err := managers[(worker+i)%2].Close(t.Context(), info.ID, true); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
	if most.Load() > int64(sessions) {
		t.Errorf("%d workspaces at once", most.Load())
	}
	if refused.Load() == 0 {
		t.Error("no ceiling was met")
	}
	if ids := b.workspaces(t); len(ids) != 0 {
		t.Errorf("left: %q", ids)
	}
	for _, c := range []struct {
		tenant string
		most   int
	}{{"one", tenant}, {"", sessions}} {
		var opened []string
		for i := range 10 {
			info, _, err := managers[i%2].Open(t.Context(), session.OpenRequest{Tenant: c.tenant})
			if err == nil {
				opened = append(opened, info.ID)
			} else {
				wantKind(t, "over the ceiling", err, session.Ceiling)
			}
		}
		if len(opened) != c.most {
			t.Errorf("tenant %q: %d sessions, want %d", c.tenant, len(opened), c.most)
		}
		for _, id := range opened {
			if err := managers[0].Close(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		}
	}
}

func testRoom(t *testing.T, b bed) {
	sessions, opened := 2, 3
	m := b.manager(t, calm, evict(0), func(c *session.Config) {
		c.Policy.MaxSessions, c.Policy.MaxOpenSessions = &sessions, &opened
	})
	open(t, m, session.OpenRequest{ID: "a"})
	open(t, m, session.OpenRequest{ID: "b"})
	b2, err := m.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	output(t, m, "a", "printf kept >f")
	open(t, m, session.OpenRequest{ID: "c"}) // a is put to sleep
	if info, err := m.Get(t.Context(), "a"); err != nil || info.State != session.Hibernated || info.Alive {
		t.Errorf("a: %+v, %v", info, err)
	}
	if n := b.resident(t); n != 2 {
		t.Errorf("%d run", n)
	}
	open(t, m, session.OpenRequest{ID: "d"}) // a is closed, c put to sleep
	_, err = m.Get(t.Context(), "a")
	wantKind(t, "a", err, session.NotFound)
	d, err := m.Acquire(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Acquire(t.Context(), "c")
	wantKind(t, "waking c while both others are in use", err, session.Ceiling)
	d.Release()
	if got := output(t, m, "c", "echo awake"); got != "awake\n" {
		t.Errorf("%q", got)
	}
	b2.Release()
	// With its files, which a close keeps.
	open(t, m, session.OpenRequest{ID: "a", Attach: true})
	if got := output(t, m, "a", "cat f"); got != "kept" {
		t.Errorf("%q", got)
	}
}
