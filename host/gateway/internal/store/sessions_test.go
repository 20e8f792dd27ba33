package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

func testRoundTrip(t *testing.T, s *store.Store) {
	want := store.Record{ID: "a", State: store.Opening, Runtime: "r", Provider: "p", Tenant: "t", Token: "tok", Nonce: "n", Anonymous: true}
	r, err := s.Claim(t.Context(), want, store.Options{Gateway: "g", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Held() || r.Owner != "g" || r.Busy() || r.Version == 0 || r.Idle() > time.Minute || r.Created.IsZero() {
		t.Errorf("claimed: %+v", r)
	}
	r.State, r.Ref, r.CanStop, r.Anonymous = store.Running, "p/x", true, false
	r.Generation++
	generation, version := r.Generation, r.Version
	r, err = s.Swap(t.Context(), r, store.Options{Gateway: "g", Busy: time.Minute, Active: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	got.Now = r.Now
	if got != r {
		t.Errorf("read %+v, written %+v", got, r)
	}
	if r.State != store.Running || r.Ref != "p/x" || !r.CanStop || r.Anonymous || r.Generation != generation || r.Version != version+1 || r.Held() || r.Owner != "" || !r.Busy() || r.BusyBy != "g" {
		t.Errorf("changed: %+v", r)
	}
	listed, err := s.List(t.Context(), store.Running, store.Closed)
	if err != nil || len(listed) != 1 || listed[0].ID != "a" {
		t.Errorf("listed %+v, %v", listed, err)
	}
	if listed, err = s.List(t.Context(), store.Closed); err != nil || len(listed) != 0 {
		t.Errorf("listed as closed %+v, %v", listed, err)
	}
	if err := s.Delete(t.Context(), store.Record{ID: "a", Version: version}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("deleted by an old version: %v", err)
	}
	if err := s.Delete(t.Context(), r); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after its deletion: %v", err)
	}
	if again := claim(t, s, "a", store.Options{}); again.Generation <= generation || again.Version <= r.Version {
		t.Errorf("claimed again, it is taken for the one that was: %+v", again)
	}
}

func testClaimOnce(t *testing.T, s *store.Store) {
	errs := together(20, func(int) error {
		_, err := s.Claim(t.Context(), store.Record{ID: "a", State: store.Opening}, store.Options{})
		return err
	})
	if n := successes(t, errs, store.ErrExists); n != 1 {
		t.Errorf("%d claimed it", n)
	}
}

func testSwap(t *testing.T, s *store.Store) {
	r := claim(t, s, "a", store.Options{})
	errs := together(20, func(int) error {
		r := r
		r.State = store.Closed
		_, err := s.Swap(t.Context(), r, store.Options{})
		return err
	})
	if n := successes(t, errs, store.ErrChanged); n != 1 {
		t.Errorf("%d changed it from one version", n)
	}
}

func testUnused(t *testing.T, s *store.Store) {
	r := claim(t, s, "a", store.Options{Gateway: "one", Busy: time.Minute})
	r.State = store.Hibernating
	if _, err := s.Swap(t.Context(), r, store.Options{Gateway: "two", Unused: true}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("stopped under another gateway's use: %v", err)
	}
	if ok, err := s.Touch(t.Context(), "a", r.Generation, "two", time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, gateway := range []string{"one", "two"} {
		if _, err := s.Swap(t.Context(), r, store.Options{Gateway: gateway, Unused: true}); !errors.Is(err, store.ErrChanged) {
			t.Errorf("stopped by %s although both use it: %v", gateway, err)
		}
	}
	b := claim(t, s, "b", store.Options{Gateway: "one", Busy: time.Minute})
	b.State = store.Hibernating
	if _, err := s.Swap(t.Context(), b, store.Options{Gateway: "one", Unused: true}); err != nil {
		t.Errorf("by the only one that uses it: %v", err)
	}
	c := claim(t, s, "c", store.Options{Gateway: "one", Busy: time.Microsecond})
	until(t, s, "c", func(r store.Record) bool { return !r.Busy() })
	c.State = store.Hibernating
	if _, err := s.Swap(t.Context(), c, store.Options{Gateway: "two", Unused: true}); err != nil {
		t.Errorf("after the other's use ran out: %v", err)
	}
}

func testTouch(t *testing.T, s *store.Store) {
	r := claim(t, s, "a", store.Options{})
	for _, c := range []struct {
		what       string
		id         string
		generation int64
		want       bool
	}{
		{"a running one", "a", r.Generation, true},
		{"another generation", "a", r.Generation + 1, false},
		{"none", "b", 0, false},
	} {
		if ok, err := s.Touch(t.Context(), c.id, c.generation, "g", time.Minute); ok != c.want || err != nil {
			t.Errorf("%s: %v, %v", c.what, ok, err)
		}
	}
	r.State = store.Hibernated
	if _, err := s.Swap(t.Context(), r, store.Options{}); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.Touch(t.Context(), "a", r.Generation, "g", time.Minute); ok || err != nil {
		t.Errorf("one that sleeps: %v, %v", ok, err)
	}
	c := claim(t, s, "c", store.Options{})
	lost, err := s.Renew(t.Context(), "g", map[string]store.Use{"a": {Generation: r.Generation, Lease: time.Minute}, "c": {Generation: c.Generation, Lease: time.Minute, Idle: time.Hour}})
	if err != nil || len(lost) != 1 || lost[0] != "a" {
		t.Errorf("renewed: lost %q, %v", lost, err)
	}
	// A renewal that was on its way does not shorten a use that has begun since.
	if lost, err = s.Renew(t.Context(), "g", map[string]store.Use{"c": {Generation: c.Generation, Lease: time.Microsecond}}); err != nil || len(lost) != 0 {
		t.Errorf("renewed again: lost %q, %v", lost, err)
	}
	c, err = s.Get(t.Context(), "c")
	if err != nil || c.BusyUntil.Sub(c.Now) < 30*time.Second || c.BusyBy != "g" || c.Idle() > time.Minute {
		t.Errorf("renewed: %+v, %v", c, err)
	}
}

// Many claim, wake, and close at once; at no moment are there more than the limits.
func testLimits(t *testing.T, s *store.Store) {
	residents, opened, tenant := 5, 8, 3
	limits := &store.Limits{Resident: &residents, Open: &opened, Tenant: &tenant}
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			r, o, err := s.Count(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if r > residents || o > opened {
				t.Errorf("%d run, %d are open", r, o)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var met atomic.Bool
	errs := together(8, func(worker int) error {
		var ceiling *store.CeilingError
		rng := rand.New(rand.NewPCG(1, uint64(worker)))
		for i := range 15 {
			r := store.Record{ID: fmt.Sprintf("s-%d-%d", worker, i), State: store.Opening, Tenant: []string{"", "one", "two"}[rng.IntN(3)]}
			r, err := s.Claim(t.Context(), r, store.Options{Limits: limits})
			if errors.As(err, &ceiling) {
				met.Store(true)
				continue
			}
			if err != nil {
				return err
			}
			for _, state := range []store.State{store.Running, store.Hibernated, store.Waking, store.Running} {
				r.State = state
				changed, err := s.Swap(t.Context(), r, store.Options{Limits: limits})
				if errors.As(err, &ceiling) {
					break
				}
				if err != nil {
					return err
				}
				r = changed
			}
			if rng.IntN(3) > 0 {
				if err := s.Delete(t.Context(), store.Record{ID: r.ID, Version: r.Version}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	close(stop)
	watcher.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	records, err := s.ListOpen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for _, r := range records {
		held[r.Tenant]++
	}
	if held["one"] > tenant || held["two"] > tenant {
		t.Errorf("by tenant: %v", held)
	}
	if !met.Load() {
		t.Error("no limit was met")
	}
}

func testLeases(t *testing.T, s *store.Store) {
	const lease = 300 * time.Millisecond
	if _, err := s.Claim(t.Context(), store.Record{ID: "a", State: store.Opening}, store.Options{Gateway: "g", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	// Renewed by its owner alone, and only where that is at work.
	if err := errors.Join(s.Beat(t.Context(), "g", []string{"a"}, time.Hour), s.Beat(t.Context(), "h", []string{"a"}, time.Microsecond), s.Beat(t.Context(), "g", nil, time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(t.Context(), "a")
	if err != nil || r.LeaseUntil.Sub(r.Now) < time.Minute {
		t.Errorf("renewed: %+v, %v", r, err)
	}
	if _, err := s.Claim(t.Context(), store.Record{ID: "b", State: store.Opening}, store.Options{Gateway: "g", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	until(t, s, "b", func(r store.Record) bool { return !r.Held() })
	if err := s.Leave(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Get(t.Context(), "a"); err != nil || r.Held() {
		t.Errorf("after its owner left: %+v, %v", r, err)
	}
}
