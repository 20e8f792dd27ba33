package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

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
		runs, err := other.Runs(t.Context(), "a")
		if err != nil || len(runs) != i+1 || runs[i].ID != runID || runs[i].End != nil || runs[i].Args[0] != "sleep" {
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
