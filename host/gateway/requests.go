package gateway

import (
	"context"
	"sync"
)

// requests counts those that are being answered.
type requests struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when there are none; nil while nobody waits
}

// begin counts one that begins; what it returns counts its end.
func (r *requests) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.count--; r.count == 0 && r.none != nil {
			close(r.none)
			r.none = nil
		}
	}
}

// wait returns when there are none, or with ctx's error.
func (r *requests) wait(ctx context.Context) error {
	r.mu.Lock()
	if r.count == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.none == nil {
		r.none = make(chan struct{})
	}
	none := r.none
	r.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
