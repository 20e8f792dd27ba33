package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// How long and how many runs of the background are kept after their end, for their
// output to be read: as long as a listing tells of them, and no more memory than
// some runs take that go.
const (
	keepEnded       = 10 * time.Minute
	maxEnded        = 256
	maxEndedSession = 16
)

// runTable holds the runs of this gateway.
type runTable struct {
	keepEnded time.Duration

	mu         sync.Mutex
	runs       map[runKey]*activeRun
	kept       []keptRun // oldest first
	expiry     *time.Timer
	background map[*activeRun]bool
	closed     bool
	idle       chan struct{} // closed when closed, and no background run is left
}

// keptRun is a run that has ended.
type keptRun struct {
	run   *activeRun
	until time.Time
}

func newRunTable() *runTable {
	return &runTable{
		keepEnded: keepEnded, runs: make(map[runKey]*activeRun), background: make(map[*activeRun]bool), idle: make(chan struct{}),
	}
}

// holdBackground has a shutdown end a run that is about to start, and wait for that.
func (t *runTable) holdBackground(r *activeRun) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errText(http.StatusServiceUnavailable, "the gateway ends")
	}
	t.background[r] = true
	return nil
}

// add enters a run that is about to start. It replaces one of the same name that has
// ended: two that go the manager does not allow.
func (t *runTable) add(r *activeRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(t.runs[r.key])
	t.runs[r.key] = r
}

// get returns a run of the session that was opened at that time, or nil.
func (t *runTable) get(key runKey, opened time.Time) *activeRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[key]
	if r == nil || !r.opened.IsZero() && !r.opened.Equal(opened) {
		return nil
	}
	return r
}

// ended keeps a run of the background that was started for a while, and forgets any
// other.
func (t *runTable) ended(r *activeRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.background[r] || t.closed || !isClosed(r.started) {
		t.forget(r)
	} else if t.runs[r.key] == r {
		t.keep(r)
	}
	delete(t.background, r)
	t.settle()
}

func (t *runTable) keep(r *activeRun) {
	t.kept = append(t.kept, keptRun{r, time.Now().Add(t.keepEnded)})
	same, oldest := 0, r
	for _, k := range slices.Backward(t.kept) {
		if k.run.key.session == r.key.session {
			same, oldest = same+1, k.run
		}
	}
	switch {
	case same > maxEndedSession:
		t.forget(oldest)
	case len(t.kept) > maxEnded:
		t.forget(t.kept[0].run)
	}
	if t.expiry == nil {
		t.expiry = time.AfterFunc(t.keepEnded, t.expire)
	}
}

// expire forgets those whose time has passed.
func (t *runTable) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry = nil
	if t.closed {
		return
	}
	now := time.Now()
	for len(t.kept) > 0 && !t.kept[0].until.After(now) {
		t.forget(t.kept[0].run)
	}
	if len(t.kept) > 0 {
		t.expiry = time.AfterFunc(t.kept[0].until.Sub(now), t.expire)
	}
}

func (t *runTable) forget(r *activeRun) {
	if r == nil {
		return
	}
	if t.runs[r.key] == r {
		delete(t.runs, r.key)
	}
	t.kept = slices.DeleteFunc(t.kept, func(k keptRun) bool { return k.run == r })
}

// settle tells a shutdown that nothing is left.
func (t *runTable) settle() {
	if t.closed && len(t.background) == 0 {
		select {
		case <-t.idle:
		default:
			close(t.idle)
		}
	}
}

// shutdown ends the runs of the background, and waits for that until ctx ends.
func (t *runTable) shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	if t.expiry != nil {
		t.expiry.Stop()
		t.expiry = nil
	}
	t.kept = nil
	for r := range t.background {
		r.cancel(errShutdown)
	}
	t.settle()
	t.mu.Unlock()
	select {
	case <-t.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
