package process

import (
	"testing"
	"time"
)

// Work that does not end by itself leaves most of the time to others.
func TestPace(t *testing.T) {
	const slices = 20
	var p pace
	began := time.Now()
	for range slices {
		p.spend(func() {
			for busy := time.Now(); time.Since(busy) < paceSlice; {
				continue
			}
		})
	}
	if took := time.Since(began); took < slices*(paceSlice+pacePause) {
		t.Errorf("%d slices of %v took %v together: they had no pauses of %v", slices, paceSlice, took, pacePause)
	}
	if p.spent != 0 {
		t.Errorf("%v are still to be paused for", p.spent)
	}
	if p.spend(func() {}); p.spent >= paceSlice || p.spent < 0 {
		t.Errorf("nothing took %v", p.spent)
	}
}
