package sdk

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// watchLinger is how long a workspace is watched after its last command: those of
// an agent follow each other, and to begin a watch may be dearer than a command.
const watchLinger = 10 * time.Second

// watch is the one Watch call of a workspace while commands run in it.
type watch struct {
	mu     sync.Mutex
	runs   map[*stopper]struct{}
	gone   error              // what ended it: the workspace is gone
	cancel context.CancelFunc // ends the call, nil while there is none
	linger *time.Timer        // ends it when there are no runs
}

// watchRun ends r if its workspace goes away (contract L7), until leave.
func (s *server) watchRun(e *entry, r *stopper) (leave func()) {
	watcher, ok := e.ws.(Watcher)
	if !ok {
		return func() {}
	}
	w := &e.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone != nil { // between this run's acquiring of the workspace and here
		r.stop(stopGone(w.gone))
		return func() {}
	}
	if w.runs == nil {
		w.runs = map[*stopper]struct{}{}
	}
	w.runs[r] = struct{}{}
	if w.linger != nil {
		w.linger.Stop()
	}
	if w.cancel == nil {
		ctx, cancel := context.WithCancel(s.alive)
		w.cancel = cancel
		s.goSafely("Watch", func() { s.watch(ctx, e, watcher) })
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.runs, r)
		if len(w.runs) == 0 && w.cancel != nil {
			w.linger = time.AfterFunc(s.watchLinger, w.endUnused)
		}
	}
}

// endUnused ends the call unless there are runs again.
func (w *watch) endUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		w.end()
	}
}

// end ends the call. The lock must be held.
func (w *watch) end() {
	if w.linger != nil {
		w.linger.Stop()
	}
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

func (s *server) watch(ctx context.Context, e *entry, watcher Watcher) {
	err := s.safely("Watch", func() error { return watcher.Watch(ctx) })
	e.watch.mu.Lock()
	if ctx.Err() != nil {
		e.watch.mu.Unlock()
		return
	}
	e.watch.end() // the next run may try anew
	if !isUnavailable(err) {
		e.watch.mu.Unlock()
		s.logger.Warn("watching a workspace ended early", "workspace", e.id, "error", s.redactor.text(fmt.Sprint(err)))
		return
	}
	e.watch.gone = err
	runs := make([]*stopper, 0, len(e.watch.runs))
	for r := range e.watch.runs {
		runs = append(runs, r)
	}
	e.watch.mu.Unlock()
	s.cache.forget(e)
	for _, r := range runs {
		r.stop(stopGone(err))
	}
}
