package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

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
