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

// take hears what the host has taken.
func (w *window) take(m *berthv1.RunTaken) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for which, offset := range [2]int64{stdout: m.GetStdoutOffset(), stderr: m.GetStderrOffset()} {
		if offset < 0 || offset > w.sent[which] {
			return fmt.Errorf("the host took %d bytes of %s, %d were sent: %w", offset, outputNames[which], w.sent[which], workspace.ErrInvalid)
		}
		w.taken[which] = max(w.taken[which], offset)
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

// outbox is what is on its way to the host. Its output is bounded by the window.
type outbox struct {
	mu         sync.Mutex
	messages   []*berthv1.RunResponse
	last       [2]*berthv1.RunOutput  // of messages, the last of each output
	results    int                    // of messages, results of signals
	stdinTaken *berthv1.RunStdinTaken // only the latest
	outcome    *berthv1.RunOutcome
	ended      bool
	wake       chan struct{}
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// update changes the box, unless its outcome is in, and wakes the sender.
func (o *outbox) update(change func()) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	change()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return true
}

func (o *outbox) put(m *berthv1.RunResponse) {
	o.update(func() {
		o.messages = append(o.messages, m)
		if m.GetSignalResult() != nil {
			o.results++
		}
	})
}

// unsentResults is how many results of signals have not been sent.
func (o *outbox) unsentResults() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.results
}

// output queues bytes, which it copies, and reports whether it did. Those of a
// command that writes one at a time, or by turns here and there, are put together
// while they wait.
func (o *outbox) output(which int, offset int64, data []byte) (done bool) {
	return o.update(func() {
		if last := o.last[which]; last != nil && len(last.Data)+len(data) <= wire.ChunkSize {
			last.Data = append(last.Data, data...)
			return
		}
		chunk := &berthv1.RunOutput{Offset: offset, Data: append([]byte(nil), data...)}
		m := &berthv1.RunResponse{Message: &berthv1.RunResponse_Stdout{Stdout: chunk}}
		if which == stderr {
			m = &berthv1.RunResponse{Message: &berthv1.RunResponse_Stderr{Stderr: chunk}}
		}
		o.messages, o.last[which] = append(o.messages, m), chunk
	})
}

func (o *outbox) tookStdin(offset int64, closed bool) {
	o.update(func() { o.stdinTaken = &berthv1.RunStdinTaken{Offset: offset, Closed: closed} })
}

// end is the last that goes in.
func (o *outbox) end(outcome *berthv1.RunOutcome) {
	o.update(func() { o.outcome, o.ended = outcome, true })
}

// next is what is to be sent next, nil when there is nothing. After last there
// is nothing more.
func (o *outbox) next() (m *berthv1.RunResponse, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.messages) > 0:
		m = o.messages[0]
		o.messages[0] = nil
		if o.messages = o.messages[1:]; len(o.messages) == 0 {
			o.messages = nil
		}
		o.taken(m)
		return m, false
	case o.stdinTaken != nil:
		m = &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: o.stdinTaken}}
		o.stdinTaken = nil
		return m, false
	case o.outcome != nil:
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: o.outcome}}, true
	}
	return nil, false
}

// taken notes that m is on its way: nothing may be added to it.
func (o *outbox) taken(m *berthv1.RunResponse) {
	if m.GetSignalResult() != nil {
		o.results--
	}
	for which, chunk := range [2]*berthv1.RunOutput{stdout: m.GetStdout(), stderr: m.GetStderr()} {
		if chunk != nil && chunk == o.last[which] {
			o.last[which] = nil
		}
	}
}
