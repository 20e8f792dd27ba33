package execpath

import "testing"

// TestACommandThatHasEndedHasBegun hears of both before it looks, again and again:
// which of two things that are there comes first is a matter of luck.
func TestACommandThatHasEndedHasBegun(t *testing.T) {
	for range 100 {
		p := &process{started: make(chan struct{}), done: make(chan struct{})}
		p.told("started 7")
		p.finish(0, nil)
		if p.begun(t.Context()) {
			t.Fatal("a command that started and ended is taken for one that never started")
		}
	}
	p := &process{started: make(chan struct{}), done: make(chan struct{})}
	p.finish(0, nil)
	if !p.begun(t.Context()) {
		t.Error("a command whose streams ended is taken for one that started")
	}
}
