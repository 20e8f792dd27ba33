package execpath

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestMarksAreFoundWhereverTheStreamIsCut feeds a lane a byte at a time, and in
// halves at every place.
func TestMarksAreFoundWhereverTheStreamIsCut(t *testing.T) {
	const word = "word"
	stream := "before\x01wor\x01\x01word started 7\nbetween\x01\x01word exited 0\nafter"
	for cut := 0; cut <= len(stream); cut++ {
		var told []string
		l := newLane(word, false, func(text string) bool {
			told = append(told, text)
			return strings.HasPrefix(text, "exited")
		})
		pieces := []string{stream[:cut], stream[cut:]}
		if cut == 0 {
			pieces = strings.Split(stream, "")
		}
		for _, piece := range pieces {
			if n, err := io.WriteString(l, piece); n != len(piece) || err != nil {
				t.Fatalf("cut at %d: %d, %v", cut, n, err)
			}
		}
		got, err := io.ReadAll(iotest.OneByteReader(l))
		if want := "before\x01wor\x01between\x01"; string(got) != want || err != nil {
			t.Errorf("cut at %d: read %q, error %v, want %q", cut, got, err, want)
		}
		if strings.Join(told, ",") != "started 7,exited 0" {
			t.Errorf("cut at %d: told %q", cut, told)
		}
	}
}

func TestAMarkWithoutAnEndIsRefused(t *testing.T) {
	l := newLane("word", true, func(string) bool { return false })
	if _, err := io.WriteString(l, "\x01word"+strings.Repeat("x", 2*longestMark)); err == nil {
		t.Error("a line of any length was taken")
	}
}

// TestUnreadOutputIsBounded shows that a writer waits, and that the end wakes it.
func TestUnreadOutputIsBounded(t *testing.T) {
	l := newLane("word", false, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Write(make([]byte, 4*laneRoom))
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(l, first); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("all was taken though nobody reads")
	default:
	}
	l.finish()
	<-done
	if kept, err := io.ReadAll(l); err != nil || len(kept) > laneRoom {
		t.Errorf("%d bytes were kept, error %v, want at most %d", len(kept), err, laneRoom)
	}
}
