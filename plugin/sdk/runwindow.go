package sdk

import (
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// The outputs of a run.
const (
	stdout = iota
	stderr
)

var outputNames = [2]string{stdout: "stdout", stderr: "stderr"}

// minRead is the least room for which it is worth to read: below, a slow caller
// would have its output in crumbs.
const minRead = 4 << 10

// window bounds the output that was read from a command and not taken by the
// host (contract C10).
type window struct {
	mu       sync.Mutex
	change   sync.Cond
	sent     [2]int64 // offsets up to which output was queued
	taken    [2]int64 // and taken by the host
	reserved int64    // by reads under way
	waiting  int      // readers that wait for room
	dropping bool
	from     *outbox   // nobody takes from it: its oldest output makes room
	progress time.Time // when a reader last had something to do
}

func newWindow() *window {
	w := &window{progress: time.Now()}
	w.change.L = &w.mu
	return w
}

// reserve waits for room and returns how much may be read, at most want. Zero is
// given only when the command was stopped: what is read then is dropped.
func (w *window) reserve(want int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
	defer func() { w.waiting--; w.progress = time.Now() }()
	for {
		room := wire.RunWindow - w.reserved
		for i := range w.sent {
			room -= w.sent[i] - w.taken[i]
		}
		if room < minRead && w.from != nil {
			room += w.discard(minRead - room)
		}
		if room >= minRead || w.dropping {
			n := max(min(int64(want), room), 0)
			w.reserved += n
			return int(n)
		}
		w.change.Wait()
	}
}

// queue ends a reservation of n bytes and puts the data that was read into out.
// Both under one lock: the host may take it at once.
func (w *window) queue(out *outbox, which, n int, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(data) > 0 && out.output(which, w.sent[which], data) {
		w.sent[which] += int64(len(data))
	}
	w.reserved -= int64(n)
	w.progress = time.Now()
	w.change.Broadcast()
}

// overwrite has readers go on at the cost of the oldest output in out, or no more
// if that is nil.
func (w *window) overwrite(out *outbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = out
	w.change.Broadcast()
}

// discard drops at least n bytes if there are as many, and returns how much room
// that made.
func (w *window) discard(n int64) (room int64) {
	for which, base := range w.from.discard(n) {
		if base > w.taken[which] {
			room += base - w.taken[which]
			w.taken[which] = base
		}
	}
	return room
}

// take hears what the host has taken, which out need not keep.
func (w *window) take(out *outbox, m *berthv1.RunTaken) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for which, offset := range [2]int64{stdout: m.GetStdoutOffset(), stderr: m.GetStderrOffset()} {
		if offset < 0 || offset > w.sent[which] {
			return fmt.Errorf("the host took %d bytes of %s, %d were sent: %w", offset, outputNames[which], w.sent[which], workspace.ErrInvalid)
		}
		w.taken[which] = max(w.taken[which], offset)
		out.release(which, offset)
	}
	w.change.Broadcast()
	return nil
}

// drop makes readers go on without room: an outcome waits for them, and not for
// the caller.
func (w *window) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropping = true
	w.change.Broadcast()
}

// ends are the offsets of all that was queued.
func (w *window) ends() (stdoutEnd, stderrEnd int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[stdout], w.sent[stderr]
}

// idle is for how long no reader had anything to do, though none was waiting
// for the host.
func (w *window) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting > 0 {
		return 0
	}
	return time.Since(w.progress)
}
