package sdk

import (
	"sync"
	"time"
)

// tasks counts what is going on. Unlike a sync.WaitGroup it may be waited for while
// others start, and not for ever: a call of a provider may never return.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n becomes 0; nil without a waiter
}

func (t *tasks) goes(fn func()) {
	end := t.begin()
	go func() {
		defer end()
		fn()
	}()
}

// begin counts one more, until end.
func (t *tasks) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.end
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait reports whether all were done within most.
func (t *tasks) wait(most time.Duration) bool {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return true
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
