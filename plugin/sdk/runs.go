package sdk

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// rememberedRuns is how many run ids of a workspace are known to be used. A host
// repeats one only within seconds, after an answer was lost.
const rememberedRuns = 4096

// registryIDSize is in bytes: two registries never have the same.
const registryIDSize = 16

// registry knows the runs of every workspace.
type registry struct {
	id    []byte    // random: who was told it before a start was sent, knows that this was here then
	since time.Time // what ran before is not known

	mu        sync.Mutex
	sets      map[string]*runSet // by workspace id
	kept      []*run             // those that are over, in the order of their ends
	closed    bool
	forgotten time.Time // as in runSet, of all those that have no set
}

type runSet struct {
	active     map[string]*run // and over, but with an outcome that was not taken
	relayed    map[*relayedRun]struct{}
	used       map[string]time.Time // when
	order      []string             // of used, oldest first
	forgotten  time.Time            // what was used until then is not known any more
	destroying int
}

func newRegistry() *registry {
	id := make([]byte, registryIDSize)
	_, _ = rand.Read(id) // it never fails
	return &registry{id: id, since: time.Now(), sets: map[string]*runSet{}}
}

// set is that of a workspace. It must be called with the lock held.
func (g *registry) set(id string) *runSet {
	set := g.sets[id]
	if set == nil {
		set = &runSet{active: map[string]*run{}, relayed: map[*relayedRun]struct{}{}, used: map[string]time.Time{}, forgotten: g.since}
		if g.forgotten.After(g.since) {
			set.forgotten = g.forgotten
		}
		g.sets[id] = set
	}
	return set
}

// prune drops an empty set. What it has forgotten stays so. It must be called with
// the lock held.
func (g *registry) prune(id string, set *runSet) {
	if set.destroying == 0 && len(set.used) == 0 && len(set.relayed) == 0 && g.sets[id] == set {
		delete(g.sets, id)
		if set.forgotten.After(g.forgotten) {
			g.forgotten = set.forgotten
		}
	}
}

// addRelayed notes a run that a guest has, until done is called.
func (g *registry) addRelayed(id string, r *relayedRun) (done func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosingRelay
	}
	set := g.set(id)
	if set.destroying > 0 {
		return nil, destroyed(id)
	}
	set.relayed[r] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(set.relayed, r)
		g.prune(id, set)
	}, nil
}

// add takes r's id for good: it is never run a second time.
func (g *registry) add(id string, r *run) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosing
	}
	set := g.set(id)
	if set.destroying > 0 {
		return destroyed(id)
	}
	if _, ok := set.used[r.id]; ok {
		return fmt.Errorf("run %s: its id was used before in this workspace: %w", r.id, fs.ErrExist)
	}
	if err := g.mayBegin(set, r); err != nil {
		return err
	}
	if len(set.order) == rememberedRuns {
		set.forgotten = set.used[set.order[0]]
		delete(set.used, set.order[0])
		set.order = append(set.order[:0], set.order[1:]...)
	}
	set.used[r.id] = time.Now()
	set.order = append(set.order, r.id)
	set.active[r.id] = r
	return nil
}

// repeatMargin is what the time that a repeated start tells may be short of, for
// its way to here.
const repeatMargin = time.Second

// mayBegin refuses a start that was sent before if it may have been heard then, by
// whoever was here or by a registry that has forgotten it. A host that was told of this
// one before it sent the start first proves that it was here then, however short ago
// it was made: if it has forgotten nothing, what it does not know never arrived. What
// else it was told, if anything, proves nothing, and the age decides.
func (g *registry) mayBegin(set *runSet, r *run) error {
	age := time.Duration(r.start.GetRepeatedAfterNs())
	switch {
	case age == 0:
		return nil
	case bytes.Equal(r.start.GetRunRegistry(), g.id) && !set.forgotten.After(g.since):
		return nil
	case r.begun.Add(-age - repeatMargin).Before(set.forgotten):
		return fmt.Errorf("run %s: whether it was started %v ago is not known any more: %w", r.id, age.Round(time.Millisecond), fs.ErrNotExist)
	}
	return nil
}

func (g *registry) remove(id string, r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if set := g.sets[id]; set != nil && set.active[r.id] == r {
		delete(set.active, r.id)
	}
	g.unkeep(r)
}

// find returns a run that is going, or nil for one that is over.
func (g *registry) find(id, runID string) (*run, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if set := g.sets[id]; set != nil {
		if r := set.active[runID]; r != nil {
			return r, nil
		}
		if _, ok := set.used[runID]; ok {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("run %q: %w", runID, fs.ErrNotExist)
}

// destroying ends the runs of a workspace, waits until what they started is
// stopped, and lets no other one begin until done is called.
func (g *registry) destroying(ctx context.Context, id string) (done func()) {
	g.mu.Lock()
	set := g.set(id)
	set.destroying++
	g.mu.Unlock()
	g.end(ctx, id, destroyed(id))
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		set.destroying--
		g.prune(id, set)
	}
}

// end ends the runs of a workspace that goes away, and waits until what they
// started is stopped.
func (g *registry) end(ctx context.Context, id string, why error) {
	var active []*run
	g.mu.Lock()
	if set := g.sets[id]; set != nil {
		active = slices.Collect(maps.Values(set.active))
		for r := range set.relayed {
			r.stop(stopGone(why))
		}
	}
	g.mu.Unlock()
	for _, r := range active {
		r.stop(stopGone(why))
	}
	for _, r := range active {
		select {
		case <-r.stopped:
		case <-ctx.Done():
		}
	}
}

// drop forgets the runs of a workspace that is destroyed.
func (g *registry) drop(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if set := g.sets[id]; set != nil {
		for _, r := range set.active {
			g.unkeep(r)
		}
		set.active = map[string]*run{}
		set.used = map[string]time.Time{}
		set.forgotten = time.Now()
		set.order = nil
	}
}

// stopAllWait is what stopAll gives to the killing, after the grace.
const stopAllWait = 250 * time.Millisecond

// stopAll stops every run, lets no other one begin, and waits for those that
// stop in time. Those that guests have only lose their streams: another plugin
// process may take them up.
func (g *registry) stopAll(grace time.Duration) {
	g.mu.Lock()
	g.closed = true
	var active []*run
	for _, set := range g.sets {
		for _, r := range set.active {
			active = append(active, r)
		}
		for r := range set.relayed {
			r.stop(stopCause{err: func(string) error { return errClosingRelay }})
		}
	}
	g.mu.Unlock()
	for _, r := range active {
		why := errClosing
		if r.server.def.durableRuns {
			why = errEnding
		}
		r.stop(stopCause{err: stoppedBy(why), grace: grace})
	}
	timer := time.NewTimer(grace + stopAllWait)
	defer timer.Stop()
	for _, r := range active {
		select {
		case <-r.stopped:
		case <-timer.C:
			return
		}
	}
}

// runRegistry tells who notes the ids of a workspace's runs: its guest, or this
// server, or nobody beyond their streams.
func (s *server) runRegistry(e *entry) []byte {
	switch {
	case e.target != nil:
		return e.target.RunRegistry()
	case s.def.durableRuns:
		return s.runs.id
	}
	return nil
}

func destroyed(id string) error {
	return fmt.Errorf("workspace %s was destroyed: %w", id, workspace.ErrUnavailable)
}

// StopRun stops a run's whole process tree.
func (s *server) StopRun(ctx context.Context, req *berthv1.StopRunRequest) (*berthv1.StopRunResponse, error) {
	if _, err := s.configured(); err != nil {
		return nil, err
	}
	r, err := s.runs.find(req.GetWorkspace().GetId(), req.GetRunId())
	if err != nil {
		// It is not ours. A guest may have it.
		return s.stopUnknownRun(ctx, req, err)
	}
	if r == nil {
		return &berthv1.StopRunResponse{}, nil
	}
	r.stop(stopCanceled)
	select {
	case <-r.stopped:
		return &berthv1.StopRunResponse{}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("stopping run %s: %w", r.id, context.Cause(ctx))
	}
}
