package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

const (
	// eventPause is how long events are gathered: a transaction each would keep the
	// database busy for nobody.
	eventPause = 200 * time.Millisecond
	// maxPending is how many events wait for a store that does not answer. Then new
	// ones are dropped, which the log tells.
	maxPending = 10_000
	// maxTarget is how much of a command line, or of an error, an event tells.
	maxTarget = 1024
)

// Event is one operation in a session's log, without contents.
type Event = store.Event

// eventLog gathers events on their way to the store.
type eventLog struct {
	wake chan struct{}

	mu      sync.Mutex
	pending map[string][]store.Event
	count   int
	dropped int

	writing sync.Mutex // held while a batch is written, so that batches keep their order
}

// Record adds to a session's log. It never waits.
func (m *Manager) Record(id string, e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	l := &m.events
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= maxPending {
		l.dropped++
		return
	}
	if l.pending == nil {
		l.pending = make(map[string][]store.Event)
	}
	l.count++
	e.Target, e.Detail = cut(e.Target, maxTarget), cut(e.Detail, maxTarget)
	l.pending[id] = append(l.pending[id], e)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// flush writes what is pending.
func (l *eventLog) flush(ctx context.Context, st *store.Store) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch, count := l.pending, l.count
	l.pending, l.count = nil, 0
	l.mu.Unlock()
	if count == 0 {
		return nil
	}
	err := st.Append(ctx, batch)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, later := range l.pending {
		batch[id] = append(batch[id], later...)
	}
	l.pending = batch
	l.count += count
	return err
}

// logEvents writes events until ctx ends. What is pending then is for Shutdown.
func (m *Manager) logEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.events.wake:
		}
		for sleep(ctx, eventPause) {
			callCtx, cancel := context.WithTimeout(ctx, beatTimeout)
			err := m.events.flush(callCtx, m.st)
			cancel()
			m.events.mu.Lock()
			dropped := m.events.dropped
			m.events.dropped = 0
			m.events.mu.Unlock()
			if dropped > 0 {
				m.log.Warn("events were dropped: the session store did not take them", "events", dropped)
			}
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				m.log.Warn("events could not be written; trying again", "error", err)
			}
		}
	}
}

// Events returns a session's log after a sequence number, oldest first, and the
// latest number. What was recorded here is in it.
func (m *Manager) Events(ctx context.Context, id string, after int64) ([]Event, int64, error) {
	if _, err := m.Get(ctx, id); err != nil {
		return nil, 0, err
	}
	if err := m.events.flush(ctx, m.st); err != nil {
		return nil, 0, storeError(err)
	}
	events, latest, err := m.st.Events(ctx, id, after)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, errNotFound(id)
	}
	if err != nil {
		return nil, 0, storeError(err)
	}
	return events, latest, nil
}
