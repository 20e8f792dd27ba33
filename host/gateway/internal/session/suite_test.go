package session_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// bed is a provider and an empty store, which any number of managers share.
type bed struct {
	*folders
	url   string
	store func(testing.TB) *store.Store // of one more gateway
}

func (b bed) manager(t testing.TB, change ...func(*session.Config)) *session.Manager {
	t.Helper()
	return newManager(t, b.folders, b.store(t), change...)
}

func TestSQLite(t *testing.T) {
	suite(t, func(t *testing.T) bed {
		b := bed{folders: newFolders(t), url: "file:" + filepath.Join(t.TempDir(), "sessions.db")}
		one := sync.OnceValue(func() *store.Store { return openStore(t, b.url) }) // a process has one
		b.store = func(testing.TB) *store.Store { return one() }
		return b
	})
}

// suite is what holds on both databases, most of it with two gateways.
func suite(t *testing.T, newBed func(*testing.T) bed) {
	for name, test := range map[string]func(*testing.T, bed){
		"20 at once open one session":                    testOneWorkspace,
		"ceilings hold under concurrency":                testCeilings,
		"ceilings make room":                             testRoom,
		"a session that is idle sleeps, and wakes":       testHibernate,
		"a request and hibernation race":                 testHibernateRace,
		"a long use is not put to sleep":                 testLongUse,
		"a purge ends what runs":                         testPurgeDuringRun,
		"a close elsewhere ends what runs":               testCloseElsewhere,
		"a run is stopped through another gateway":       testStopElsewhere,
		"the policy is shared":                           testPolicyShared,
		"a session opened here is used there":            testUsedElsewhere,
		"what a dead gateway was opening is taken over":  testTakeOver,
		"what a dead gateway left is put in order":       testLeft,
		"a create that fails leaves nothing":             testCreateFails,
		"a purge that fails is tried again":              testPurgeFails,
		"lifetimes end sessions":                         testLifetimes,
		"events are in order":                            testEvents,
		"a workspace that is gone is told":               testGone,
		"sessions churn through two gateways":            testChurn,
		"an opening that nobody waits for any more":      testAbandoned,
		"stored files of a closed session can be read":   testStored,
		"stored files are read without a start":          testStoredAsleep,
		"a wake that fails leaves the session asleep":    testWakeFails,
		"a run of an id that is going is refused":        testRunTwice,
		"a gateway that shuts down gives back its hold":  testShutdown,
		"without a stop a close keeps the workspace":     testPermanent,
		"a session's own token opens its session alone":  testTokens,
		"a session is not put to sleep by a failed stop": testStopFails,
		"a gateway that stalls while it opens":           testStalled,
		"a gateway that is killed while it opens":        testKilledInCreate,
		"a gateway that is killed while it runs":         testKilledInRun,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, newBed(t))
		})
	}
}

func evict(after time.Duration) func(*session.Config) {
	return func(c *session.Config) { c.Policy.EvictIdleAfter = &after }
}

func calm(c *session.Config) { c.Timing.Sweep = time.Hour }

// together calls f at once from many.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func testOneWorkspace(t *testing.T, b bed) {
	b.set(func(f *folders) {
		f.onMake = func(ctx context.Context, _ string) error { return pause(ctx, 50*time.Millisecond) }
	})
	managers := []*session.Manager{b.manager(t), b.manager(t)}
	tokens := make([]string, 20)
	together(20, func(i int) {
		for {
			_, token, err := managers[i%2].Open(t.Context(), session.OpenRequest{ID: "race", Reuse: true})
			if err == nil {
				tokens[i] = token
				return
			}
			var e *session.Error
			if !errors.As(err, &e) || e.Kind != session.Opening || e.Text != "Session is opening: race" {
				t.Errorf("%v", err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	if n := b.creates.Load(); n != 1 || len(b.workspaces(t)) != 1 {
		t.Errorf("%d workspaces made, %q are there", n, b.workspaces(t))
	}
	if len(slices.Compact(tokens)) != 1 {
		t.Errorf("tokens: %q", tokens)
	}
	// Without reuse exactly one gets it.
	var got, refused atomic.Int64
	together(20, func(i int) {
		_, _, err := managers[i%2].Open(t.Context(), session.OpenRequest{ID: "mine"})
		switch kind(t, err) {
		case "":
			got.Add(1)
		case session.Exists, session.Opening:
			refused.Add(1)
		default:
			t.Errorf("%v", err)
		}
	})
	if got.Load() != 1 || refused.Load() != 19 {
		t.Errorf("%d got it, %d were refused", got.Load(), refused.Load())
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

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
		return time.Since(begun) < 6*time.Second || b.stops.Load() < 5 && time.Since(begun) < time.Minute
	}
	var uses atomic.Int64
	together(4, func(worker int) {
		rng := rand.New(rand.NewPCG(2, uint64(worker)))
		m := managers[worker%2]
		for goOn() {
			u, err := m.Acquire(t.Context(), []string{"a", "b"}[rng.IntN(2)])
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
			if rng.IntN(20) > 0 {
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
	// More than twice as long as its lease.
	if _, err := u.Workspace.Run(t.Context(), workspace.Command{Args: []string{"sleep", "5"}}); err != nil {
		t.Errorf("%v", err)
	}
	info, err := other.Get(t.Context(), "a")
	if err != nil || info.State != session.Running || b.stops.Load() != 0 {
		t.Errorf("%+v, %v, stopped %d times", info, err, b.stops.Load())
	}
	u.Release()
	eventually(t, "it is closed for being idle", func() bool {
		_, err := other.Get(t.Context(), "a")
		return err != nil && kind(t, err) == session.NotFound
	})
}

// running starts a long command as the HTTP side does, and returns how it ended.
func running(t testing.TB, m *session.Manager, id, runID string) <-chan error {
	t.Helper()
	u, err := m.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := u.Context(t.Context())
	done, err := m.RunBegin(ctx, session.RunInfo{Session: id, ID: runID, Args: []string{"sleep", "600"}}, cancel)
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer u.Release()
		defer cancel()
		_, err := u.Workspace.Run(ctx, workspace.Command{Script: "echo; exec sleep 600", Stdout: &firstWrite{c: started}})
		err = u.Check(t.Context(), err)
		done(session.RunEnd{Detail: "ended"})
		ended <- err
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("the run ended at once: %v", err)
	}
	return ended
}

type firstWrite struct {
	once sync.Once
	c    chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.c) })
	return len(p), nil
}

func await(t testing.TB, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the run goes on")
		return nil
	}
}

func testPurgeDuringRun(t *testing.T, b bed) {
	managers := []*session.Manager{b.manager(t), b.manager(t)}
	for i, m := range managers { // through its own gateway, and through the other one
		id := fmt.Sprint("s", i)
		open(t, managers[0], session.OpenRequest{ID: id})
		ended := running(t, managers[0], id, "r")
		if err := m.Close(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "the run", await(t, ended), session.Gone)
		_, err := managers[0].Acquire(t.Context(), id)
		wantKind(t, "the session", err, session.NotFound)
	}
	if ids := b.workspaces(t); len(ids) != 0 {
		t.Errorf("left: %q", ids)
	}
}

func testCloseElsewhere(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	ended := running(t, m, "a", "r")
	if err := other.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "the run", await(t, ended), session.Gone)
	if n := b.resident(t); n != 0 {
		t.Errorf("%d run", n)
	}
}

func testStopElsewhere(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	for i, by := range []*session.Manager{m, other} {
		runID := fmt.Sprint("r", i)
		ended := running(t, m, "a", runID)
		if err := m.RunStarted(t.Context(), "a", runID, "run-host"); err != nil {
			t.Fatal(err)
		}
		runs, err := other.Runs(t.Context(), "a")
		if err != nil || len(runs) != i+1 || runs[i].ID != runID || runs[i].End != nil || runs[i].HostRun != "run-host" || runs[i].Args[0] != "sleep" {
			t.Errorf("runs: %+v, %v", runs, err)
		}
		if err := by.StopRun(t.Context(), "a", runID); err != nil {
			t.Error(err)
		}
		if err := await(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the run: %v", err)
		}
		if runs, err = other.Runs(t.Context(), "a"); err != nil || runs[i].End == nil || runs[i].End.Detail != "ended" {
			t.Errorf("afterwards: %+v, %v", runs, err)
		}
		if err := by.StopRun(t.Context(), "a", runID); err != nil {
			t.Errorf("a stop of one that has ended: %v", err)
		}
	}
	if err := other.StopRun(t.Context(), "a", "none"); err != nil {
		t.Errorf("a stop of none: %v", err)
	}
}

func testRunTwice(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	done, err := m.RunBegin(t.Context(), session.RunInfo{Session: "a", ID: "r"}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []*session.Manager{m, other} {
		_, err := by.RunBegin(t.Context(), session.RunInfo{Session: "a", ID: "r"}, func() {})
		wantKind(t, "the same id", err, session.RunExists)
	}
	done(session.RunEnd{})
	done(session.RunEnd{Detail: "twice"})
	again, err := other.RunBegin(t.Context(), session.RunInfo{Session: "a", ID: "r"}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	again(session.RunEnd{})
	if err := m.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	_, err = other.RunBegin(t.Context(), session.RunInfo{Session: "a", ID: "r"}, func() {})
	wantKind(t, "in a closed session", err, session.Gone)
}

func testPolicyShared(t *testing.T, b bed) {
	m, other := b.manager(t), b.manager(t)
	one := 1
	p, err := m.SetPolicy(t.Context(), session.PolicyUpdate{MaxSessions: session.To(&one), DefaultRuntime: session.To("other")})
	if err != nil || *p.MaxSessions != 1 || p.DefaultRuntime != "other" || p.ExecuteTimeout != time.Minute {
		t.Fatalf("%+v, %v", p, err)
	}
	if info := open(t, other, session.OpenRequest{}); info.Runtime != "other" {
		t.Errorf("%+v", info)
	}
	_, _, err = other.Open(t.Context(), session.OpenRequest{})
	wantKind(t, "over the other's ceiling", err, session.Ceiling)
	later := b.manager(t)
	if p := later.Policy(); p.MaxSessions == nil || *p.MaxSessions != 1 {
		t.Errorf("a gateway that starts later: %+v", p)
	}
	if _, err := other.SetPolicy(t.Context(), session.PolicyUpdate{MaxSessions: session.To[*int](nil)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first one learns it", func() bool { return m.Policy().MaxSessions == nil && m.Policy().DefaultRuntime == "other" })
	minus, never := -1, time.Duration(0)
	for what, c := range map[string]struct {
		update session.PolicyUpdate
		want   session.Kind
	}{
		"a runtime that is none": {session.PolicyUpdate{DefaultRuntime: session.To("ruby")}, session.UnknownRuntime},
		"a negative ceiling":     {session.PolicyUpdate{MaxSessions: session.To(&minus)}, session.Invalid},
		"no time for a run":      {session.PolicyUpdate{ExecuteTimeout: session.To(never)}, session.Invalid},
	} {
		_, err := m.SetPolicy(t.Context(), c.update)
		wantKind(t, what, err, c.want)
	}
	if p := m.Policy(); p.DefaultRuntime != "other" || p.MaxSessions != nil || p.ExecuteTimeout != time.Minute {
		t.Errorf("after what was refused: %+v", p)
	}
}

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

// left enters a record as a gateway that is killed leaves it.
func left(t testing.TB, st *store.Store, r store.Record) store.Record {
	t.Helper()
	r.Runtime, r.Provider, r.Nonce = "plain", "folder", "n"
	r, err := st.Claim(t.Context(), r, store.Options{Gateway: "gw-dead", Lease: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b bed) make(t testing.TB, token string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(b.root, token), 0o755); err != nil {
		t.Fatal(err)
	}
}

func testTakeOver(t *testing.T, b bed) {
	st := b.store(t)
	m := b.manager(t, func(c *session.Config) { c.Timing.Abandoned = time.Hour })
	for _, id := range []string{"made", "not-made", "plain"} {
		token := workspace.NewToken()
		if id == "made" {
			b.make(t, token)
			if err := os.WriteFile(filepath.Join(b.root, token, "f"), []byte("first"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		left(t, st, store.Record{ID: id, State: store.Opening, Token: token})
	}
	_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "made", Reuse: true})
	wantKind(t, "while its lease holds", err, session.Opening)
	_, err = m.Acquire(t.Context(), "made")
	wantKind(t, "a use meanwhile", err, session.Opening)
	for _, req := range []session.OpenRequest{{ID: "made", Attach: true}, {ID: "not-made", Reuse: true}, {ID: "plain"}} {
		eventually(t, req.ID+" is taken over", func() bool {
			_, _, err := m.Open(t.Context(), req)
			if err != nil && kind(t, err) != session.Opening {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if got := output(t, m, "made", "cat f"); got != "first" {
		t.Errorf("not the workspace that was being made: %q", got)
	}
	if n := len(b.workspaces(t)); n != 3 || b.creates.Load() != 2 {
		t.Errorf("%d workspaces, %d made", n, b.creates.Load())
	}
}

// A gateway that does not get to renew its lease for a while is taken over; what it
// does afterwards is of no harm.
func testStalled(t *testing.T, b bed) {
	for _, fails := range []bool{false, true} {
		id := fmt.Sprint("fails-", fails)
		begun, goOn := make(chan struct{}), make(chan struct{})
		var first sync.Once
		b.set(func(f *folders) {
			f.onMade = func(ctx context.Context, _ string) error {
				stalled := false
				first.Do(func() { stalled = true })
				if !stalled {
					return nil
				}
				close(begun)
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				if fails {
					return fmt.Errorf("after all: %w", workspace.ErrInvalid)
				}
				return nil
			}
		})
		stalled := b.manager(t, calm, func(c *session.Config) { c.Timing.Renew, c.Timing.Lease = time.Hour, 200*time.Millisecond })
		opened := make(chan error, 1)
		go func() {
			_, _, err := stalled.Open(t.Context(), session.OpenRequest{ID: id, Reuse: true})
			opened <- err
		}()
		<-begun
		m := b.manager(t, calm)
		eventually(t, "it is taken over", func() bool {
			_, _, err := m.Open(t.Context(), session.OpenRequest{ID: id, Reuse: true})
			if err != nil && kind(t, err) != session.Opening {
				t.Fatal(err)
			}
			return err == nil
		})
		output(t, m, id, "printf kept >f")
		close(goOn)
		if err := <-opened; (err != nil) != fails {
			t.Errorf("%s: the one that was stalled: %v", id, err)
		}
		if got := output(t, m, id, "cat f"); got != "kept" {
			t.Errorf("%s: %q", id, got)
		}
	}
	if n := len(b.workspaces(t)); n != 2 || b.creates.Load() != 2 || b.destroys.Load() != 0 {
		t.Errorf("%d workspaces, %d made, %d destroyed", n, b.creates.Load(), b.destroys.Load())
	}
}

func testLeft(t *testing.T, b bed) {
	st := b.store(t)
	tokens := make(map[string]string)
	record := func(id string, state store.State, change func(*store.Record)) {
		tokens[id] = workspace.NewToken()
		b.make(t, tokens[id])
		r := store.Record{ID: id, State: state, Token: tokens[id]}
		if state != store.Opening {
			r.Ref, r.CanStop = "folder/"+tokens[id], true
		}
		if change != nil {
			change(&r)
		}
		left(t, st, r)
	}
	record("anonymous", store.Opening, func(r *store.Record) { r.Anonymous = true })
	record("named", store.Opening, nil)
	record("reopening", store.Opening, func(r *store.Record) { r.Ref, r.CanStop = "folder/"+r.Token, true })
	record("hibernating", store.Hibernating, nil)
	record("waking", store.Waking, nil)
	record("closing", store.Closing, nil)
	record("purging", store.Purging, nil)
	b.manager(t)
	for id, want := range map[string]store.State{"anonymous": "", "named": "", "purging": "", "reopening": store.Closed, "hibernating": store.Hibernated, "waking": store.Hibernated, "closing": store.Closed} {
		eventually(t, id+" is put in order", func() bool {
			r, err := st.Get(t.Context(), id)
			if errors.Is(err, store.ErrNotFound) {
				return want == ""
			}
			return err == nil && r.State == want
		})
		_, err := os.Stat(filepath.Join(b.root, tokens[id]))
		if there := err == nil; there != (want != "") || there && !b.stopped(tokens[id]) {
			t.Errorf("the workspace of %s: %v, stopped: %v", id, err, b.stopped(tokens[id]))
		}
	}
}

func testCreateFails(t *testing.T, b bed) {
	m := b.manager(t, calm)
	for what, c := range map[string]struct {
		err  error
		want session.Kind
	}{
		"transient": {fmt.Errorf("busy: %w", workspace.ErrTransient), session.Transient},
		"invalid":   {fmt.Errorf("wrong: %w", workspace.ErrInvalid), session.Failed},
	} {
		b.set(func(f *folders) { f.onMake = func(context.Context, string) error { return c.err } })
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "a"})
		wantKind(t, what, err, c.want)
		if !errors.Is(err, errors.Unwrap(c.err)) {
			t.Errorf("%s: its cause is lost: %v", what, err)
		}
		if counts, err := m.Count(t.Context()); err != nil || counts.Open != 0 || counts.Resident != 0 {
			t.Errorf("%s: %+v, %v", what, counts, err)
		}
	}
	b.set(func(f *folders) { f.onMake = nil })
	open(t, m, session.OpenRequest{ID: "a"})
}

func testPurgeFails(t *testing.T, b bed) {
	m := b.manager(t, func(c *session.Config) { c.Timing.Lease = 300 * time.Millisecond })
	open(t, m, session.OpenRequest{ID: "a"})
	b.set(func(f *folders) { f.onEnd = func(context.Context, string) error { return workspace.ErrTransient } })
	wantKind(t, "a purge without its provider", m.Close(t.Context(), "a", true), session.Transient)
	_, err := m.Get(t.Context(), "a")
	wantKind(t, "get", err, session.NotFound)
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "a", Attach: true})
	wantKind(t, "attach", err, session.NothingToAttach)
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "a", Reuse: true})
	wantKind(t, "open", err, session.Opening)
	b.set(func(f *folders) { f.onEnd = nil })
	eventually(t, "it is destroyed", func() bool { return len(b.workspaces(t)) == 0 })
	eventually(t, "its id is free", func() bool {
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "a"})
		return err == nil
	})
}

func testLifetimes(t *testing.T, b bed) {
	idle := 100 * time.Millisecond
	m := b.manager(t, evict(0), func(c *session.Config) { c.Policy.IdleTimeout = &idle })
	open(t, m, session.OpenRequest{ID: "a"})
	output(t, m, "a", "printf kept >f")
	eventually(t, "it is closed", func() bool {
		_, err := m.Get(t.Context(), "a")
		return err != nil
	})
	open(t, m, session.OpenRequest{ID: "a", Attach: true})
	if got := output(t, m, "a", "cat f"); got != "kept" {
		t.Errorf("%q", got)
	}
	eventually(t, "it is closed again", func() bool {
		_, err := m.Get(t.Context(), "a")
		return err != nil
	})
	if n := b.destroys.Load(); n != 0 {
		t.Errorf("%d workspaces were destroyed, though nobody said so", n)
	}
	if _, err := m.SetPolicy(t.Context(), session.PolicyUpdate{WorkspaceTTL: session.To(&idle)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its workspace is destroyed", func() bool { return len(b.workspaces(t)) == 0 })
	eventually(t, "there is nothing to attach to", func() bool {
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "a", Attach: true})
		return kind(t, err) == session.NothingToAttach
	})
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

func testGone(t *testing.T, b bed) {
	m := b.manager(t)
	open(t, m, session.OpenRequest{ID: "a"})
	output(t, m, "a", "true")
	u, err := m.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Release()
	// A command that merely failed says nothing of the session.
	missing := u.Check(t.Context(), &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist})
	if !errors.Is(missing, fs.ErrNotExist) || u.Check(t.Context(), nil) != nil {
		t.Errorf("%v", missing)
	}
	if err := os.RemoveAll(filepath.Join(b.root, b.workspaces(t)[0])); err != nil {
		t.Fatal(err)
	}
	_, err = u.Workspace.Stat(t.Context(), ".")
	wantKind(t, "a call", u.Check(t.Context(), fmt.Errorf("as a provider says it: %w (%w)", workspace.ErrUnavailable, err)), session.Gone)
	_, err = m.Acquire(t.Context(), "a")
	wantKind(t, "the next one", err, session.Gone)
	if info, err := m.Get(t.Context(), "a"); err != nil || info.Alive {
		t.Errorf("%+v, %v", info, err)
	}
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "a", Attach: true})
	wantKind(t, "attach", err, session.NothingToAttach)
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "a"})
	wantKind(t, "open", err, session.Exists)
	if info := open(t, m, session.OpenRequest{ID: "a", Reuse: true}); !info.Alive {
		t.Errorf("%+v", info)
	}
	if n := b.creates.Load(); n != 2 {
		t.Errorf("%d workspaces made", n)
	}
	// A closed one.
	if err := m.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	for _, id := range b.workspaces(t) {
		if err := os.RemoveAll(filepath.Join(b.root, id)); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "a", Attach: true})
	wantKind(t, "attach to a closed one that is gone", err, session.NothingToAttach)
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

func testAbandoned(t *testing.T, b bed) {
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	b.set(func(f *folders) {
		f.onMade = func(ctx context.Context, _ string) error {
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	})
	m := b.manager(t)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, id := range []string{"", "named"} {
		wg.Go(func() {
			if _, _, err := m.Open(ctx, session.OpenRequest{ID: id}); !errors.Is(err, context.Canceled) {
				t.Errorf("%q: %v", id, err)
			}
		})
	}
	<-begun
	<-begun
	cancel()
	wg.Wait()
	close(goOn)
	// The client of the named one asks again; of the other one nobody knows.
	eventually(t, "the named one is there", func() bool {
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "named", Reuse: true})
		return err == nil
	})
	eventually(t, "the anonymous one is not", func() bool { return len(b.workspaces(t)) == 1 })
	if b.creates.Load() != 2 {
		t.Errorf("%d made", b.creates.Load())
	}
}

func testStored(t *testing.T, b bed) {
	m := b.manager(t, calm)
	open(t, m, session.OpenRequest{ID: "a"})
	output(t, m, "a", "printf kept >f")
	read := func() {
		t.Helper()
		s, err := m.Stored(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := s.Stat(t.Context(), "f"); err != nil || info.Size != 4 {
			t.Errorf("%+v, %v", info, err)
		}
		s.Release()
		s.Release()
	}
	read()
	if err := m.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	read()
	read()
	eventually(t, "it is stopped again", func() bool { return b.resident(t) == 0 })
	s, err := m.Stored(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "a", Attach: true})
		opened <- err
	}()
	if _, err := s.Stat(t.Context(), "f"); err != nil {
		t.Error(err)
	}
	s.Release()
	if err := <-opened; err != nil {
		t.Errorf("opened while it was read: %v", err)
	}
	if got := output(t, m, "a", "cat f"); got != "kept" {
		t.Errorf("%q", got)
	}
	_, err = m.Stored(t.Context(), "none")
	wantKind(t, "of no session", err, session.NotFound)
}

func testStoredAsleep(t *testing.T, b bed) {
	b.readable = true
	m := b.manager(t, evict(0))
	open(t, m, session.OpenRequest{ID: "a"})
	output(t, m, "a", "printf kept >f")
	eventually(t, "it sleeps", func() bool { return b.resident(t) == 0 })
	read := func(what string) {
		t.Helper()
		before := b.attaches.Load()
		s, err := m.Stored(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		if info, err := s.Stat(t.Context(), "f"); err != nil || info.Size != 4 || s.Woken {
			t.Errorf("%s: %+v, %v, woken: %v", what, info, err, s.Woken)
		}
		if b.attaches.Load() != before || b.resident(t) != 0 {
			t.Errorf("%s: the workspace was started", what)
		}
	}
	read("asleep")
	if err := m.Close(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	read("closed")
	if err := os.RemoveAll(filepath.Join(b.root, b.workspaces(t)[0])); err != nil {
		t.Fatal(err)
	}
	s, err := m.Stored(t.Context(), "a")
	if err == nil { // whether it is there is found out by the first call
		_, err = s.Stat(t.Context(), "f")
	}
	if !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("of one that is gone: %v", err)
	}
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

func testPermanent(t *testing.T, b bed) {
	b.permanent = true
	idle := time.Millisecond
	m := b.manager(t, evict(0), func(c *session.Config) { c.Policy.IdleTimeout = &idle })
	open(t, m, session.OpenRequest{ID: "a"})
	eventually(t, "it is closed, not put to sleep", func() bool {
		_, err := m.Get(t.Context(), "a")
		return err != nil
	})
	if n := b.resident(t); n != 1 || b.stops.Load() != 0 {
		t.Errorf("%d run, %d stopped", n, b.stops.Load())
	}
	open(t, m, session.OpenRequest{ID: "a", Attach: true})
	if b.creates.Load() != 1 {
		t.Errorf("%d made", b.creates.Load())
	}
}

func testTokens(t *testing.T, b bed) {
	m := b.manager(t)
	_, a, err := m.Open(t.Context(), session.OpenRequest{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := m.Open(t.Context(), session.OpenRequest{ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token, id string
		want      session.Kind
	}{
		{serviceToken, "", ""},
		{serviceToken, "a", ""},
		{serviceToken, "none", ""},
		{a, "a", ""},
		{a, "c", session.Unauthorized},
		{c, "a", session.Unauthorized},
		{a, "", session.Unauthorized},
		{a, "none", session.Unauthorized},
		{"", "a", session.Unauthorized},
		{"", "", session.Unauthorized},
		{serviceToken + "x", "", session.Unauthorized},
		{a[:42], "a", session.Unauthorized},
		{"\xff\xfe", "a", session.Unauthorized},
	} {
		wantKind(t, fmt.Sprintf("token %.6q on %q", test.token, test.id), m.Authorize(t.Context(), test.token, test.id), test.want)
	}
	if err := m.Close(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	_, again, err := m.Open(t.Context(), session.OpenRequest{ID: "a"})
	if err != nil || again == a {
		t.Errorf("the same token for another session of the id: %v", err)
	}
	wantKind(t, "the old one", m.Authorize(t.Context(), a, "a"), session.Unauthorized)
}
