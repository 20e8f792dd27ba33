package session_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

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
