package session_test

import (
	"strconv"
	"testing"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

// BenchmarkRun is what a manager adds to a command: who asks for it, the session in
// use, and the run entered and ended.
func BenchmarkRun(b *testing.B) {
	m := newManager(b, newFolders(b), newStore(b), calm)
	_, token, err := m.Open(b.Context(), session.OpenRequest{ID: "a"})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		run  bool
	}{{"file", false}, {"run", true}} {
		b.Run(c.name, func(b *testing.B) {
			for i := range b.N {
				if err := m.Authorize(b.Context(), token, "a"); err != nil {
					b.Fatal(err)
				}
				u, err := m.Acquire(b.Context(), "a")
				if err != nil {
					b.Fatal(err)
				}
				if c.run {
					done, err := m.RunBegin(b.Context(), session.RunInfo{Session: "a", ID: strconv.Itoa(i)}, func() {})
					if err != nil {
						b.Fatal(err)
					}
					done(session.RunEnd{Detail: "exit 0"})
				}
				m.Record("a", session.Event{Op: c.name})
				u.Release()
			}
		})
	}
}
