package docker

import (
	"context"
	"sync"
	"time"

	dockerevents "github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
)

const (
	// eventsRetry is how long is waited before the events are asked for again
	// after their stream has ended: the engine restarts, or is away.
	eventsRetry = time.Second
	// watchLook is how often a watched container is looked at all the same: an
	// event can be lost with its stream.
	watchLook = 15 * time.Second
)

// events is one stream of the engine's events about containers that end, for all
// who watch one. It is open while somebody does.
type events struct {
	engine *engine.Engine
	logger hclog.Logger

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	stop     context.CancelFunc // of the stream, nil while nobody watches
	closed   bool
	tasks    sync.WaitGroup
}

// watcher is told that its container may have ended.
type watcher struct {
	container string
	changed   chan struct{} // holds one value
}

func newEvents(eng *engine.Engine, logger hclog.Logger) *events {
	return &events{engine: eng, logger: logger, watchers: map[*watcher]struct{}{}}
}

// watch adds a watcher until leave.
func (e *events) watch(container string) (w *watcher, leave func()) {
	w = &watcher{container: container, changed: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchers[w] = struct{}{}
	if e.stop == nil && !e.closed {
		ctx, stop := context.WithCancel(context.Background())
		e.stop = stop
		e.tasks.Go(func() { e.follow(ctx) })
	}
	return w, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.watchers, w)
		if len(e.watchers) == 0 && e.stop != nil {
			e.stop()
			e.stop = nil
		}
	}
}

func (e *events) close() {
	e.mu.Lock()
	e.closed = true
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
	e.mu.Unlock()
	e.tasks.Wait()
}

// follow reads the stream, and opens it again when it ends.
func (e *events) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.read(ctx)
		if ctx.Err() != nil {
			return
		}
		e.logger.Debug("the engine's events have ended", "error", err)
		e.tell("") // whatever happened meanwhile
		select {
		case <-time.After(eventsRetry):
		case <-ctx.Done():
		}
	}
}

func (e *events) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, errs := e.engine.Client().Events(ctx, dockerevents.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", string(dockerevents.ContainerEventType)),
		filters.Arg("event", string(dockerevents.ActionDie)),
		filters.Arg("event", string(dockerevents.ActionDestroy)),
	)})
	e.tell("") // what happened before the stream was open
	for {
		select {
		case m := <-messages:
			e.tell(m.Actor.ID)
		case err := <-errs:
			return err
		}
	}
}

// tell wakes the watchers of a container, or all.
func (e *events) tell(container string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		if container == "" || w.container == container {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// watch returns when the room's container has ended or was replaced.
func (p *provider) watch(ctx context.Context, r *room) error {
	w, leave := p.events.watch(r.container) //nolint:contextcheck // the stream is for all who watch
	defer leave()
	ticker := time.NewTicker(watchLook)
	defer ticker.Stop()
	for {
		select {
		case <-w.changed:
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		c, err := p.inspect(ctx, r.container)
		if err == nil && c.State.Paused {
			continue // somebody has it stand still: it may go on
		}
		if err := p.stateOf(ctx, r, c, err); err != nil {
			return err
		}
	}
}
