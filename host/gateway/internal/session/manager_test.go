package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestMain makes this binary also what commands of workspaces are started with, and
// a gateway that is to be killed.
func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(victimEnv) != "" {
		victim()
	}
	goleak.VerifyTestMain(m)
}

const serviceToken = "token-of-the-service"

// quick are periods for tests that wait for leases to run out. The lease is as long
// as a busy machine may hold up the one who renews it.
var quick = session.Timing{Lease: 2 * time.Second, Renew: 100 * time.Millisecond, Sweep: 50 * time.Millisecond, Abandoned: time.Second, Poll: 10 * time.Millisecond}

func defaults() session.Policy {
	return session.Policy{DefaultRuntime: "plain", ExecuteTimeout: time.Minute, MaxReadBytes: 8 << 20}
}

func newStore(t testing.TB) *store.Store {
	t.Helper()
	return openStore(t, "file:"+filepath.Join(t.TempDir(), "sessions.db"))
}

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return st
}

// testLog has a test tell what was logged.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func baseConfig() session.Config {
	return session.Config{
		Token: serviceToken, Policy: defaults(), Timing: quick,
		Runtimes: []session.Runtime{
			{Alias: "plain", Provider: "folder", Config: map[string]any{"env": map[string]any{"RUNTIME": "plain"}}},
			{Alias: "other", Provider: "folder"},
		},
	}
}

// newManager is a gateway's over a provider and a store.
func newManager(t testing.TB, f *folders, st *store.Store, change ...func(*session.Config)) *session.Manager {
	t.Helper()
	config := baseConfig()
	config.Host, config.Store = f.host(t), st
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: testLog{t}, Level: hclog.Debug})
	for _, c := range change {
		c(&config)
	}
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Errorf("shutting the manager down: %v", err)
		}
	})
	return m
}

func open(t testing.TB, m *session.Manager, req session.OpenRequest) session.Info {
	t.Helper()
	info, _, err := m.Open(t.Context(), req)
	if err != nil {
		t.Fatalf("open %+v: %v", req, err)
	}
	return info
}

// output runs a script in a session.
func output(t testing.TB, m *session.Manager, id, script string) string {
	t.Helper()
	u, err := m.Acquire(t.Context(), id)
	if err != nil {
		t.Fatalf("use %s: %v", id, err)
	}
	defer u.Release()
	res, err := u.Workspace.Run(t.Context(), workspace.Command{Script: script})
	if err != nil {
		t.Fatalf("run %q in %s: %v", script, id, err)
	}
	return string(res.Stdout)
}

// kind is that of an error, empty for none.
func kind(t testing.TB, err error) session.Kind {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *session.Error
	if !errors.As(err, &e) {
		t.Fatalf("an error without a kind: %v", err)
	}
	return e.Kind
}

func wantKind(t testing.TB, what string, err error, want session.Kind) {
	t.Helper()
	if got := kind(t, err); got != want {
		t.Errorf("%s: %q (%v), want %q", what, got, err, want)
	}
}

func TestOpen_UseCloseAttachPurge(t *testing.T) {
	f := newFolders(t)
	m := newManager(t, f, newStore(t))
	info, token, err := m.Open(t.Context(), session.OpenRequest{ID: "demo-1", Runtime: "plain", Tenant: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	if info.ID != "demo-1" || info.Runtime != "plain" || info.Tenant != "t1" || !info.Alive || info.State != session.Running {
		t.Errorf("opened: %+v", info)
	}
	if len(token) != 43 {
		t.Errorf("a token of %d characters", len(token))
	}
	if got := output(t, m, "demo-1", `printf kept >f; printf %s "$RUNTIME"`); got != "plain" {
		t.Errorf("the runtime's env: %q", got)
	}
	for _, c := range []struct {
		req  session.OpenRequest
		want session.Kind
	}{
		{session.OpenRequest{ID: "demo-1"}, session.Exists},
		{session.OpenRequest{ID: "demo-1", Reuse: true}, ""},
		{session.OpenRequest{ID: "demo-1", Attach: true}, ""},
		{session.OpenRequest{ID: "demo-1", Runtime: "other", Reuse: true}, session.OtherRuntime},
		{session.OpenRequest{ID: "demo-1", Runtime: "ruby", Reuse: true}, session.UnknownRuntime},
		{session.OpenRequest{ID: "nope", Attach: true}, session.NothingToAttach},
		{session.OpenRequest{Attach: true}, session.NeedsID},
		{session.OpenRequest{ID: "../etc"}, session.Invalid},
		{session.OpenRequest{Tenant: "a b"}, session.Invalid},
	} {
		_, again, err := m.Open(t.Context(), c.req)
		wantKind(t, "open", err, c.want)
		if err == nil && again != token {
			t.Errorf("%+v gave another token than the session's", c.req)
		}
	}
	if err := m.Close(t.Context(), "demo-1", false); err != nil {
		t.Fatal(err)
	}
	if n := f.resident(t); n != 0 {
		t.Errorf("%d workspaces run after the close", n)
	}
	_, err = m.Get(t.Context(), "demo-1")
	wantKind(t, "get of a closed one", err, session.NotFound)
	_, err = m.Acquire(t.Context(), "demo-1")
	wantKind(t, "use of a closed one", err, session.NotFound)
	wantKind(t, "its old token", m.Authorize(t.Context(), token, "demo-1"), session.Unauthorized)

	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "demo-1", Runtime: "other", Attach: true})
	wantKind(t, "attach on another runtime", err, session.OtherRuntime)
	back, newToken, err := m.Open(t.Context(), session.OpenRequest{ID: "demo-1", Attach: true})
	if err != nil || back.Runtime != "plain" || newToken == token {
		t.Errorf("attached: %+v, %v; the old token: %v", back, err, newToken == token)
	}
	if got := output(t, m, "demo-1", "cat f"); got != "kept" {
		t.Errorf("its file: %q", got)
	}
	if err := m.Close(t.Context(), "demo-1", true); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "purge again", m.Close(t.Context(), "demo-1", true), session.NotFound)
	_, _, err = m.Open(t.Context(), session.OpenRequest{ID: "demo-1", Attach: true})
	wantKind(t, "attach after a purge", err, session.NothingToAttach)
	if ids := f.workspaces(t); len(ids) != 0 {
		t.Errorf("left: %q", ids)
	}
}

func TestManager_AStoreThatDoesNotAnswerIsTransient(t *testing.T) {
	st, f := newStore(t), newFolders(t)
	config := baseConfig()
	config.Host, config.Store = f.host(t), st
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := m.Open(t.Context(), session.OpenRequest{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, f := range map[string]func() error{
		"open":      func() error { _, _, err := m.Open(ctx, session.OpenRequest{ID: "b"}); return err },
		"get":       func() error { _, err := m.Get(ctx, "a"); return err },
		"list":      func() error { _, err := m.List(ctx); return err },
		"count":     func() error { _, err := m.Count(ctx); return err },
		"close":     func() error { return m.Close(ctx, "a", true) },
		"authorize": func() error { return m.Authorize(ctx, token, "a") },
		"acquire":   func() error { _, err := m.Acquire(ctx, "a"); return err },
		"stored":    func() error { _, err := m.Stored(ctx, "a"); return err },
		"policy":    func() error { _, err := m.SetPolicy(ctx, session.PolicyUpdate{}); return err },
		"events":    func() error { _, _, err := m.Events(ctx, "a", 0); return err },
		"run":       func() error { _, err := m.RunBegin(ctx, session.RunInfo{Session: "a", ID: "r"}, func() {}); return err },
		"stop":      func() error { return m.StopRun(ctx, "a", "r") },
		"runs":      func() error { _, err := m.Runs(ctx, "a"); return err },
	} {
		wantKind(t, what, f(), session.Transient)
	}
	if err := m.Authorize(ctx, serviceToken, ""); err != nil {
		t.Errorf("the service's token needs no store: %v", err)
	}
	if err := m.Shutdown(ctx); err == nil {
		t.Error("a shutdown that could not give back its leases says nothing")
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	st, f := newStore(t), newFolders(t)
	for what, change := range map[string]func(*session.Config){
		"no host":              func(c *session.Config) { c.Host = nil },
		"no store":             func(c *session.Config) { c.Store = nil },
		"no token":             func(c *session.Config) { c.Token = "" },
		"no runtimes":          func(c *session.Config) { c.Runtimes = nil },
		"an alias twice":       func(c *session.Config) { c.Runtimes = append(c.Runtimes, c.Runtimes[0]) },
		"no execute timeout":   func(c *session.Config) { c.Policy.ExecuteTimeout = 0 },
		"no such default":      func(c *session.Config) { c.Policy.DefaultRuntime = "ruby" },
		"a negative lifetime":  func(c *session.Config) { d := -time.Second; c.Policy.IdleTimeout = &d },
		"nothing may be read":  func(c *session.Config) { c.Policy.MaxReadBytes = 0 },
		"a runtime of nothing": func(c *session.Config) { c.Runtimes[0].Provider = "" },
	} {
		config := baseConfig()
		config.Host, config.Store = f.host(t), st
		change(&config)
		if m, err := session.New(config); err == nil {
			t.Errorf("%s: a manager was made", what)
			_ = m.Shutdown(t.Context())
		}
	}
}
