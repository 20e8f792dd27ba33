package sdk

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

type reportKey struct{}

// Report tells the caller of a Create or Attach what it is doing: ctx is the one
// that the provider was given. It never waits: when reports come faster than
// they are taken, the newest are kept. Elsewhere it does nothing.
func Report(ctx context.Context, p Progress) {
	if send, ok := ctx.Value(reportKey{}).(func(Progress)); ok {
		send(p)
	}
}

func withReport(ctx context.Context, send func(Progress)) context.Context {
	return context.WithValue(ctx, reportKey{}, send)
}

// reports hands progress on to all who wait for one Attach.
type reports struct {
	mu   sync.Mutex
	next int
	to   map[int]func(Progress)
}

// add returns what takes report away again. A nil one is none.
func (r *reports) add(report func(Progress)) (remove func()) {
	if report == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.to = map[int]func(Progress){}
	}
	r.next++
	n := r.next
	r.to[n] = report
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.to, n)
	}
}

func (r *reports) send(p Progress) {
	r.mu.Lock()
	to := slices.Collect(maps.Values(r.to))
	r.mu.Unlock()
	for _, report := range to {
		report(p)
	}
}

// progressBuffer is how many reports wait for a slow stream before the oldest
// are dropped.
const progressBuffer = 16

// progressQueue is the reports on their way to one stream.
type progressQueue chan *berthv1.Progress

func newProgressQueue() progressQueue { return make(progressQueue, progressBuffer) }

func (q progressQueue) put(p Progress) {
	message := &berthv1.Progress{Text: []byte(p.Text), Done: max(p.Done, 0), Total: max(p.Total, 0), Unit: utf8Text(p.Unit)}
	for {
		select {
		case q <- message:
			return
		default:
		}
		select {
		case <-q: // the oldest
		default:
		}
	}
}
