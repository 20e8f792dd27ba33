package events

import (
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestTheNewestAreKept(t *testing.T) {
	for _, added := range []int{0, 1, Kept - 1, Kept, Kept + 1, 3*Kept + 7} {
		r := New()
		for i := range added {
			r.Add(Started, strconv.Itoa(i))
		}
		list := r.List()
		if len(list) != min(added, Kept) {
			t.Fatalf("%d of %d are kept", len(list), added)
		}
		for i, e := range list {
			if want := strconv.Itoa(added - len(list) + i); e.Text != want || e.Kind != Started || e.Time.IsZero() {
				t.Errorf("after %d the event %d is %+v, not %s", added, i, e, want)
			}
			if i > 0 && e.Time.Before(list[i-1].Time) {
				t.Errorf("event %d is older than the one before", i)
			}
		}
	}
}

func TestALongTextIsCut(t *testing.T) {
	r := New()
	r.Add(Died, strings.Repeat("x", 10*maxText))
	if n := len(r.List()[0].Text); n > maxText+len("…") {
		t.Errorf("%d bytes are kept", n)
	}
}

func TestRingIsSafe(t *testing.T) {
	r := New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 * Kept {
				r.Add(Start, "")
				if n := len(r.List()); n == 0 || n > Kept {
					t.Errorf("%d events", n)
				}
			}
		})
	}
	wg.Wait()
}
