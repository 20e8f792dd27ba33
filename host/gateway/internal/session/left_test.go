package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

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
