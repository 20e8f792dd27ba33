package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
)

func testUsedElsewhere(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	info, token, err := m.Open(t.Context(), session.OpenRequest{ID: "a", Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Authorize(t.Context(), token, "a"); err != nil {
		t.Errorf("its token there: %v", err)
	}
	output(t, m, "a", "printf here >f")
	if got := output(t, other, "a", `cat f; printf %s "$RUNTIME"`); got != "hereplain" {
		t.Errorf("there: %q", got)
	}
	seen, err := other.Get(t.Context(), "a")
	if err != nil || seen.ID != info.ID || seen.Tenant != "t" || !seen.Created.Equal(info.Created) {
		t.Errorf("%+v, %v; it is %+v", seen, err, info)
	}
	if err := other.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	_, err = m.Acquire(t.Context(), "a")
	wantKind(t, "closed there", err, session.NotFound)
	open(t, other, session.OpenRequest{ID: "a", Attach: true})
	if got := output(t, m, "a", "cat f"); got != "here" {
		t.Errorf("reopened there: %q", got)
	}
}

func testEvents(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	for i := range 5 {
		m.Record("a", session.Event{Op: "run", Target: strconv.Itoa(i), OK: i%2 == 0, Detail: "exit 0", Duration: time.Millisecond})
	}
	m.Record("none", session.Event{Op: "run"})
	events, latest, err := m.Events(t.Context(), "a", 2)
	if err != nil || latest != 5 || len(events) != 3 {
		t.Fatalf("%+v, %d, %v", events, latest, err)
	}
	for i, e := range events {
		if e.Seq != int64(i+3) || e.Target != strconv.Itoa(i+2) || e.OK != (i%2 == 0) || e.Duration != time.Millisecond || time.Since(e.At) > time.Hour {
			t.Errorf("%+v", e)
		}
	}
	other.Record("a", session.Event{Op: "read", Target: strings.Repeat("x", 1<<20)})
	eventually(t, "the other's event comes here", func() bool {
		events, latest, err := m.Events(t.Context(), "a", 5)
		return err == nil && latest == 6 && len(events) == 1 && events[0].Op == "read" && len(events[0].Target) < 2000
	})
	if events, latest, err := m.Events(t.Context(), "a", 6); err != nil || latest != 6 || len(events) != 0 {
		t.Errorf("after the latest: %+v, %d, %v", events, latest, err)
	}
	_, _, err = m.Events(t.Context(), "none", 0)
	wantKind(t, "of no session", err, session.NotFound)
}

// Whatever two gateways do at once with a few sessions, what is left is what the
// records say.
func testChurn(t *testing.T, b bed) {
	st := b.store(t)
	managers := []*session.Manager{b.manager(t, evict(0)), b.manager(t, evict(0))}
	deadline := time.Now().Add(4 * time.Second)
	together(6, func(worker int) {
		rng := rand.New(rand.NewPCG(3, uint64(worker)))
		for time.Now().Before(deadline) {
			m, id := managers[rng.IntN(2)], fmt.Sprint("s", rng.IntN(3))
			var err error
			switch rng.IntN(6) {
			case 0, 1:
				_, _, err = m.Open(t.Context(), session.OpenRequest{ID: id, Reuse: true})
			case 2:
				err = m.Close(t.Context(), id, false)
			case 3:
				err = m.Close(t.Context(), id, true)
			default:
				var u *session.Use
				if u, err = m.Acquire(t.Context(), id); err == nil {
					_, err = u.Workspace.Stat(t.Context(), ".")
					err = u.Check(t.Context(), err)
					u.Release()
				}
			}
			switch k := kind(t, err); k {
			case "", session.NotFound, session.Opening, session.Gone:
			default:
				t.Errorf("%v (%v)", err, errors.Unwrap(err))
			}
		}
	})
	for i := range 3 {
		err := managers[0].Close(t.Context(), fmt.Sprint("s", i), true)
		if k := kind(t, err); k != "" && k != session.NotFound {
			t.Errorf("%v", err)
		}
	}
	records, err := st.List(t.Context(), store.Opening, store.Running, store.Hibernating, store.Hibernated, store.Waking, store.Closing, store.Closed, store.Purging, store.Gone)
	if err != nil || len(records) != 0 {
		t.Errorf("records left: %+v, %v", records, err)
	}
	if ids := b.workspaces(t); len(ids) != 0 {
		t.Errorf("workspaces left: %q", ids)
	}
}

func testShutdown(t *testing.T, b bed) {
	st := b.store(t)
	m := b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	m.Record("a", session.Event{Op: "run"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := st.Get(t.Context(), "a")
	if err != nil || r.Busy() || r.Held() || r.State != store.Running {
		t.Errorf("%+v, %v", r, err)
	}
	if events, _, err := st.Events(t.Context(), "a", 0); err != nil || len(events) != 1 {
		t.Errorf("events: %+v, %v", events, err)
	}
	_, err = m.Acquire(t.Context(), "a")
	wantKind(t, "a use afterwards", err, session.Transient)
	_, _, err = m.Open(t.Context(), session.OpenRequest{})
	wantKind(t, "an open afterwards", err, session.Transient)
	if got := output(t, b.manager(t), "a", "echo there"); got != "there\n" {
		t.Errorf("%q", got)
	}
}
