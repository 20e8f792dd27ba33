package main

import (
	"io"
	"testing"

	"go.uber.org/goleak"
)

// A bar is drawn by who copies, and by nobody after the end: what is said then
// stands alone.
func TestNobodyDrawsTheBarAfterItsEnd(t *testing.T) {
	for _, total := range []int64{unknownSize, 100} {
		before := goleak.IgnoreCurrent()
		p := &progress{out: io.Discard}
		p.begin(total)
		p.add(10)
		p.end()
		if err := goleak.Find(before); err != nil {
			t.Errorf("of %d bytes: %v", total, err)
		}
	}
}
