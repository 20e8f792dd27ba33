package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// cache holds the workspaces that are attached, by id. It makes a plugin
// stateless for its host: a call that names an unknown id attaches first.
type cache struct {
	server *server

	mu      sync.Mutex
	entries map[string]*entry
	flights map[string]*flight
	closing tasks // workspaces that are being closed
}

// entry is one attached workspace. It is closed when it has been forgotten and
// nothing uses it.
type entry struct {
	id          string // as in refs
	ws          Workspace
	target      relay.Target // ws, if calls on it are relayed
	incarnation string
	workingDir  string
	features    workspace.Features
	watch       watch

	// Guarded by the cache's mutex.
	uses      int
	forgotten bool
}

// flight is one Attach under way, shared by all who wait for it.
type flight struct {
	done    chan struct{}
	cancel  context.CancelFunc
	reports reports

	// Guarded by the cache's mutex, fixed once done is closed.
	waiters  int
	finished bool
	entry    *entry // with one use for each waiter that was left
	err      error
}

func newCache(s *server) *cache {
	return &cache{server: s, entries: map[string]*entry{}, flights: map[string]*flight{}}
}

// acquire returns the workspace that key names, attached, for one use. It keeps
// to what WorkspaceKey promises: a cached one whose incarnation differs is
// attached again, once, before it is called replaced.
func (c *cache) acquire(ctx context.Context, key *berthv1.WorkspaceKey) (*entry, error) {
	id, want := key.GetId(), string(key.GetIncarnation())
	if _, err := workspace.DecodeID(id); err != nil {
		return nil, err
	}
	if key.GetStored() {
		return c.acquireStored(ctx, key)
	}
	if e := c.acquireCached(key); e != nil {
		return e, nil
	}
	e, err := c.attach(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	if want != "" && want != e.incarnation {
		c.release(e)
		return nil, replaced(id)
	}
	return e, nil
}

// acquireCached is acquire for a workspace that is attached already, else nil.
func (c *cache) acquireCached(key *berthv1.WorkspaceKey) *entry {
	want := string(key.GetIncarnation())
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key.GetId()]
	if key.GetStored() || e == nil || want != "" && want != e.incarnation {
		return nil
	}
	e.uses++
	return e
}

func replaced(id string) error {
	return fmt.Errorf("workspace %s was replaced by another one under the same id: %w", id, workspace.ErrUnavailable)
}

// attach asks the provider, whatever is cached; those who ask meanwhile share
// the answer. A caller whose context ends leaves at once, and the last one to
// leave cancels the provider's call. What the provider does is in the trace of the
// first.
func (c *cache) attach(ctx context.Context, id string, report func(Progress)) (*entry, error) { //nolint:contextcheck // the shared call outlives any one caller
	state, err := c.server.configured()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	f := c.flights[id]
	if f == nil {
		flightCtx, cancel := context.WithCancel(c.server.alive)
		f = &flight{done: make(chan struct{}), cancel: cancel}
		c.flights[id] = f
		flightCtx = withReport(trace.ContextWithSpan(flightCtx, trace.SpanFromContext(ctx)), f.reports.send)
		c.server.goSafely("Attach", func() { c.fly(flightCtx, f, state, id) })
	}
	f.waiters++
	remove := f.reports.add(report) // its own lock, below ours
	c.mu.Unlock()
	defer remove()

	select {
	case <-f.done:
		return f.entry, f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	finished := f.finished
	if !finished {
		f.waiters--
		if f.waiters == 0 && c.flights[id] == f {
			delete(c.flights, id) // whoever asks next begins anew
			defer f.cancel()
		}
	}
	c.mu.Unlock()
	if finished && f.entry != nil {
		c.release(f.entry)
	}
	return nil, fmt.Errorf("attaching to workspace %s: %w", id, context.Cause(ctx))
}

func (c *cache) fly(ctx context.Context, f *flight, state *configured, id string) {
	defer f.cancel()
	var ws Workspace
	err := c.server.safely("Attach", func() error {
		name, err := workspace.DecodeID(id)
		if err != nil {
			return err
		}
		ws, err = state.provider.Attach(ctx, name)
		return err
	})
	var fresh *entry
	if err == nil {
		fresh, err = c.open(ws)
	}
	if err == nil && fresh.id != id {
		err = fmt.Errorf("provider %s: attaching to workspace %s gave workspace %s", state.name, id, fresh.id)
		c.discard(fresh)
	}
	c.mu.Lock()
	var unused []*entry
	if err != nil {
		f.err = err
	} else {
		f.entry, unused = c.put(fresh, f.waiters)
	}
	f.finished = true
	if c.flights[id] == f {
		delete(c.flights, id)
	}
	c.mu.Unlock()
	close(f.done)
	c.discard(unused...)
}

// open reads what a provider's workspace says of itself, once.
func (c *cache) open(ws Workspace) (e *entry, err error) {
	if isNil(ws) {
		return nil, errors.New("the provider returned no workspace and no error")
	}
	err = c.server.safely("opening a workspace", func() error {
		id, err := workspace.EncodeID(ws.ID())
		if err != nil {
			return fmt.Errorf("the provider's workspace has an unusable name: %w", err)
		}
		dir := ws.WorkingDir()
		if !isCanonical(dir) {
			return fmt.Errorf("workspace %s: its working directory %q is not absolute and canonical", id, dir)
		}
		target, _ := ws.(relay.Target)
		e = &entry{id: id, ws: ws, target: target, incarnation: ws.Incarnation(), workingDir: dir, features: c.server.workspaceFeatures(ws)}
		return nil
	})
	return e, err
}

// add caches what Create returned, for one use.
func (c *cache) add(ws Workspace) (*entry, error) {
	fresh, err := c.open(ws)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	e, unused := c.put(fresh, 1)
	c.mu.Unlock()
	c.discard(unused...)
	return e, nil
}

// put caches fresh with so many uses and returns it, and what is to be closed
// for that. It must be called with the lock held.
func (c *cache) put(fresh *entry, uses int) (current *entry, unused []*entry) {
	old := c.entries[fresh.id]
	if old != nil && same(old.ws, fresh.ws) && old.incarnation == fresh.incarnation {
		// The provider keeps its workspaces itself: this one must stay open.
		old.uses += uses
		return old, nil
	}
	if old != nil {
		if old.forget() {
			unused = append(unused, old)
		}
	}
	fresh.uses = uses
	c.entries[fresh.id] = fresh
	return fresh, unused
}

// release ends one use.
func (c *cache) release(e *entry) {
	c.mu.Lock()
	e.uses--
	unused := e.uses == 0 && e.forgotten
	c.mu.Unlock()
	if unused {
		c.discard(e)
	}
}

// forget takes e out of the cache: the next call attaches again.
func (c *cache) forget(e *entry) {
	c.mu.Lock()
	if c.entries[e.id] == e {
		delete(c.entries, e.id)
	}
	unused := !e.forgotten && e.forget()
	c.mu.Unlock()
	if unused {
		c.discard(e)
	}
}

// forgetID forgets whatever is cached under id.
func (c *cache) forgetID(id string) {
	c.mu.Lock()
	e := c.entries[id]
	c.mu.Unlock()
	if e != nil {
		c.forget(e)
	}
}

func (c *cache) forgetAll() {
	c.mu.Lock()
	all := make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		all = append(all, e)
	}
	c.mu.Unlock()
	for _, e := range all {
		c.forget(e)
	}
}

// forget reports whether e can be closed at once. The lock must be held.
func (e *entry) forget() bool {
	e.forgotten = true
	return e.uses == 0
}

// discard closes workspaces that nothing uses any more.
func (c *cache) discard(unused ...*entry) {
	for _, e := range unused {
		e.watch.mu.Lock()
		e.watch.end()
		e.watch.mu.Unlock()
		closer, ok := e.ws.(io.Closer)
		if !ok {
			continue
		}
		closed := c.closing.begin()
		c.server.goSafely("closing a workspace", func() {
			defer closed()
			if err := closer.Close(); err != nil {
				c.server.logger.Warn("closing a workspace", "workspace", e.id, "error", c.server.redactor.text(err.Error()))
			}
		})
	}
}

func same(a, b Workspace) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}
