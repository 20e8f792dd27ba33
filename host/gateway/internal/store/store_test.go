package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// TestMain makes this binary also another process that opens a store.
func TestMain(m *testing.M) {
	if url := os.Getenv("STORE_TEST_OPEN"); url != "" {
		s, err := store.Open(context.Background(), url)
		if err != nil {
			fmt.Println(err)
			os.Exit(0)
		}
		fmt.Println("opened")
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = s // killed with it open, or ended like this
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestSQLite(t *testing.T) {
	suite(t, func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "made", "sessions.db") }, "sqlite")
}

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// suite is what both databases must do. Each url is of an empty store.
func suite(t *testing.T, url func(*testing.T) string, driver string) {
	for name, test := range map[string]func(*testing.T, *store.Store){
		"a record keeps what it was given":               testRoundTrip,
		"an id is claimed once":                          testClaimOnce,
		"a change is from the version that was read":     testSwap,
		"a record that is in use elsewhere is not taken": testUnused,
		"a use is of a running session":                  testTouch,
		"limits hold under concurrency":                  testLimits,
		"leases run out unless they are renewed":         testLeases,
		"events are numbered and bounded":                testEvents,
		"runs are stopped by others":                     testRuns,
		"a setting is changed by one at a time":          testSettings,
	} {
		t.Run(name, func(t *testing.T) { test(t, openStore(t, url(t))) })
	}
	t.Run("it is the same after it was closed", func(t *testing.T) {
		u := url(t)
		s := openStore(t, u)
		claim(t, s, "a", store.Options{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(t, u).Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a newer schema is refused", func(t *testing.T) {
		u := url(t)
		if err := openStore(t, u).Close(); err != nil {
			t.Fatal(err)
		}
		source := u
		if driver == "sqlite" {
			source = strings.TrimPrefix(u, "file:")
		}
		db, err := sql.Open(driver, source)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, version := range []int{7, 0} {
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE berth_schema SET version = %d", version)); err != nil {
				t.Fatal(err)
			}
			_, err = store.Open(t.Context(), u)
			if !errors.Is(err, store.ErrVersion) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", version)) {
				t.Errorf("version %d: %v", version, err)
			}
		}
	})
}

func claim(t testing.TB, s *store.Store, id string, o store.Options) store.Record {
	t.Helper()
	r, err := s.Claim(t.Context(), store.Record{ID: id, State: store.Running, Token: "berth-0123456789abcdef", Tenant: "t"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until reads a record until something is so.
func until(t testing.TB, s *store.Store, id string, so func(store.Record) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if so(r) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %+v", r)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

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

// together calls f at once from many, and returns their errors.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func successes(t testing.TB, errs []error, other error) int {
	t.Helper()
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		} else if !errors.Is(err, other) {
			t.Errorf("%v", err)
		}
	}
	return n
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
	c, err = s.Get(t.Context(), "c")
	if err != nil || !c.Busy() || c.Idle() > time.Minute {
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

func testEvents(t *testing.T, s *store.Store) {
	claim(t, s, "a", store.Options{})
	event := func(op string) store.Event {
		return store.Event{At: time.UnixMicro(1_700_000_000_000_001), Op: op, Target: "a\x00b\xffc", OK: true, Detail: "exit 0", Duration: 1500 * time.Microsecond}
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": {event("1"), event("2")}, "gone": {event("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": {event("3")}}); err != nil {
		t.Fatal(err)
	}
	events, latest, err := s.Events(t.Context(), "a", 1)
	if err != nil || latest != 3 || len(events) != 2 || events[0].Seq != 2 || events[0].Op != "2" || events[1].Op != "3" {
		t.Fatalf("%+v, %d, %v", events, latest, err)
	}
	want := event("2")
	want.Seq, want.Target = 2, "a\ufffdb\ufffdc"
	if !events[0].At.Equal(want.At) {
		t.Errorf("at %v", events[0].At)
	}
	events[0].At = want.At
	if events[0] != want {
		t.Errorf("%+v, want %+v", events[0], want)
	}
	if _, _, err := s.Events(t.Context(), "gone", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	many := make([]store.Event, store.KeepEvents+10)
	for i := range many {
		many[i] = event("many")
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": many}); err != nil {
		t.Fatal(err)
	}
	events, latest, err = s.Events(t.Context(), "a", 0)
	if err != nil || len(events) != store.KeepEvents || latest != store.KeepEvents+13 || events[len(events)-1].Seq != latest {
		t.Errorf("%d events, latest %d, %v", len(events), latest, err)
	}
}

func testRuns(t *testing.T, s *store.Store) {
	claim(t, s, "a", store.Options{})
	for _, gateway := range []string{"g", "h"} {
		if err := s.Beat(t.Context(), gateway, nil, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	run := store.Run{Session: "a", ID: "r1", Gateway: "g", Args: []string{"sh", "-c", "a\x00b"}, Detached: true}
	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r1", Gateway: "h"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same id again: %v", err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "b", ID: "r1", Gateway: "h"}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("in no session: %v", err)
	}
	if err := s.NameRun(t.Context(), "a", "r1", "g", "run-host"); err != nil {
		t.Fatal(err)
	}
	key := store.RunKey{Session: "a", ID: "r1"}
	if orders, err := s.Orders(t.Context(), "g"); err != nil || len(orders) != 1 || orders[key] != 0 {
		t.Errorf("orders: %v, %v", orders, err)
	}
	if asked, err := s.StopRun(t.Context(), "a", "r1", store.StopAsked); !asked || err != nil {
		t.Errorf("stop: %v, %v", asked, err)
	}
	if orders, err := s.Orders(t.Context(), "g"); err != nil || orders[key] != store.StopAsked {
		t.Errorf("orders: %v, %v", orders, err)
	}
	if asked, err := s.StopRun(t.Context(), "a", "other", store.StopAsked); asked || err != nil {
		t.Errorf("stop of none: %v, %v", asked, err)
	}
	code := 7
	run.ExitCode, run.Detail = &code, "exit 7"
	if err := s.EndRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(t.Context(), "a", "r1")
	if err != nil || got.Ended.IsZero() || *got.ExitCode != 7 || got.Detail != "exit 7" || got.HostRun != "run-host" || !got.Detached || len(got.Args) != 3 || got.Args[2] != "a\x00b" {
		t.Errorf("ended: %+v, %v", got, err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r1", Gateway: "h"}); err != nil {
		t.Errorf("the id of one that ended: %v", err)
	}
	if runs, err := s.Runs(t.Context(), "a"); err != nil || len(runs) != 1 || runs[0].Gateway != "h" || !runs[0].Ended.IsZero() || runs[0].ExitCode != nil {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	// A gateway that is gone runs nothing.
	if err := s.Beat(t.Context(), "h", nil, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	until(t, s, "a", func(store.Record) bool {
		if err := s.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := s.Run(t.Context(), "a", "r1")
		return err == nil && !got.Ended.IsZero()
	})
}

func testSettings(t *testing.T, s *store.Store) {
	if value, err := s.Setting(t.Context(), "x"); value != "" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	errs := together(20, func(int) error {
		return s.ChangeSetting(t.Context(), "x", func(old string) (string, error) { return old + "x", nil })
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if value, err := s.Setting(t.Context(), "x"); value != strings.Repeat("x", 20) || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	refused := errors.New("refused")
	if err := s.ChangeSetting(t.Context(), "x", func(string) (string, error) { return "", refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

func TestSQLite_OneProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), "STORE_TEST_OPEN=file:"+path)
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _ := stdout.Read(buf)
	if got := string(buf[:n]); got != "opened\n" {
		t.Fatalf("the other process: %q", got)
	}
	_, err = store.Open(t.Context(), path)
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), path) {
		t.Errorf("while another process has it: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	s := openStore(t, path)
	if _, err := store.Open(t.Context(), path); !errors.Is(err, store.ErrInUse) {
		t.Errorf("twice in one process: %v", err)
	}
	claim(t, s, "a", store.Options{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", info, err)
	}
}

func TestOpen_RefusesWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE theirs (x)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                            "no URL",
		"mysql://user:secret@host/db": `scheme "mysql"`,
		"postgres://user:secret@[::/": "cannot be read",
		foreign:                       "another program",
		text:                          "SQLite",
	} {
		s, err := store.Open(t.Context(), url)
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if data, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(data), "no database") {
		t.Errorf("the file that is none was changed: %v", err)
	}
}
