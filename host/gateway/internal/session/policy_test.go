package session_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

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
