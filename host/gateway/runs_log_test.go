package gateway

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drainLog reads what a follower gets until the end, and puts it back together.
func drainLog(t *testing.T, f *follower, pause func()) (streams [2][]byte, gaps [2]int64) {
	t.Helper()
	at := f.at
	for {
		pause()
		p, state, change := f.read()
		switch state {
		case atEnd:
			return streams, gaps
		case upToDate:
			<-change
			continue
		}
		if p.gap > 0 {
			at[p.stream] += p.gap
			gaps[p.stream] += p.gap
		}
		if p.offset != at[p.stream] {
			t.Errorf("%v at %d, want %d", p.stream, p.offset, at[p.stream])
		}
		at[p.stream] += int64(len(p.data))
		streams[p.stream] = append(streams[p.stream], p.data...)
	}
}

// Whoever leads gets all of it, and whoever looks on all but what is told as a gap,
// from wherever it begins.
func TestRunLog(t *testing.T) {
	const keep = 1000
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // for a test that can be made again
		log := newRunLog(keep)
		lead, ok := log.follow(0, 0, true)
		if !ok {
			t.Fatal("no follower")
		}
		var wrote [2][]byte
		var all sync.WaitGroup
		all.Go(func() {
			streams, gaps := drainLog(t, lead, func() {})
			for s := range streams {
				if !bytes.Equal(streams[s], wrote[s]) || gaps[s] != 0 {
					t.Errorf("seed %d: %v has %d bytes of %d, %d missing", seed, outputStream(s), len(streams[s]), len(wrote[s]), gaps[s])
				}
			}
		})
		all.Go(func() {
			f, ok := log.follow(0, 0, false)
			if !ok {
				t.Error("no follower")
				return
			}
			streams, gaps := drainLog(t, f, func() {})
			for s := range streams {
				if int64(len(streams[s]))+gaps[s] != int64(len(wrote[s])) {
					t.Errorf("seed %d: %v has %d bytes and %d missing of %d", seed, outputStream(s), len(streams[s]), gaps[s], len(wrote[s]))
				}
			}
		})
		for range 200 {
			p := make([]byte, random.IntN(300))
			for i := range p {
				p[i] = byte(random.IntN(256))
			}
			stream := outputStream(random.IntN(2))
			wrote[stream] = append(wrote[stream], p...)
			if n, err := (logWriter{log, stream}).Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		log.end()
		all.Wait()
		if log.held > keep+300 {
			t.Errorf("seed %d: %d bytes are held", seed, log.held)
		}
		// From some offset, after the end.
		from := int64(random.IntN(len(wrote[0]) + 1))
		late, ok := log.follow(from, int64(len(wrote[1])), false)
		if !ok {
			t.Fatalf("seed %d: no follower at %d", seed, from)
		}
		streams, gaps := drainLog(t, late, func() {})
		if rest := wrote[0][from+gaps[0]:]; !bytes.Equal(streams[0], rest) || len(streams[1]) != 0 {
			t.Errorf("seed %d: from %d: %d bytes, %d missing, want %d", seed, from, len(streams[0]), gaps[0], len(rest))
		}
		if _, ok := log.follow(int64(len(wrote[0]))+1, 0, false); ok {
			t.Errorf("seed %d: a follower is ahead of the log", seed)
		}
	}
}

// A writer waits for who leads, not for who looks on, and no longer when that leaves.
func TestRunLog_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog(10)
		lead, _ := log.follow(0, 0, true)
		if _, ok := log.follow(0, 0, false); !ok {
			t.Fatal("no follower")
		}
		written := 0
		go func() {
			for range 4 {
				log.write(stdoutStream, []byte("012345"))
				written++
			}
		}()
		synctest.Wait()
		if written != 1 {
			t.Errorf("%d pieces were written", written)
		}
		lead.read()
		synctest.Wait()
		if written != 2 {
			t.Errorf("%d pieces were written after one was read", written)
		}
		lead.leave()
		synctest.Wait()
		if written != 4 {
			t.Errorf("%d pieces were written after it left", written)
		}
	})
}

func TestRunTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newRunTable()
		opened := time.Now()
		start := func(session, id string) *activeRun {
			t.Helper()
			r := &activeRun{key: runKey{session, id}, opened: opened, cancel: func(error) {}, started: make(chan struct{}), ended: make(chan struct{})}
			close(r.started)
			if err := table.holdBackground(r); err != nil {
				t.Fatal(err)
			}
			table.add(r)
			return r
		}
		id := func(i int) string { return string(rune('a' + i)) }
		for i := range maxEndedSession + 2 {
			table.ended(start("s", id(i)))
		}
		table.ended(start("other", "a"))
		for i, want := range []bool{false, false, true} {
			if got := table.get(runKey{"s", id(i)}, opened) != nil; got != want {
				t.Errorf("run %d is kept: %v", i, got)
			}
		}
		if table.get(runKey{"other", "a"}, opened) == nil || table.get(runKey{"other", "a"}, opened.Add(1)) != nil {
			t.Error("the other session's run")
		}
		time.Sleep(keepEnded + time.Second) // a bubble's clock
		synctest.Wait()
		if len(table.runs) != 0 || len(table.kept) != 0 || table.expiry != nil {
			t.Errorf("%d runs, %d kept", len(table.runs), len(table.kept))
		}

		// A new one of a name replaces the old one.
		old := start("s", "a")
		table.ended(old)
		fresh := start("s", "a")
		if table.get(fresh.key, opened) != fresh || len(table.kept) != 0 {
			t.Error("the old one is there")
		}
		var cause error
		fresh.cancel = func(err error) { cause = err }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := table.shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(cause, errShutdown) {
			t.Errorf("%v, %v", err, cause)
		}
		table.ended(fresh)
		if err := table.shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := table.holdBackground(fresh); err == nil {
			t.Error("one more is taken")
		}
	})
}
