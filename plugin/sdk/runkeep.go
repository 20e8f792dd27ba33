package sdk

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// Outcomes of durable runs are kept for hosts to come, up to these bounds. What is
// over one is forgotten from the oldest on, unless a stream carries it.
const (
	// outcomeWait is how long an outcome that nobody takes is kept: a host that was
	// started again has asked by then.
	outcomeWait = 10 * time.Minute
	// maxOutcomes is for all workspaces of a plugin together: as many as commands
	// may well be under way when a host is started again.
	maxOutcomes = 1024
	// maxOutcomeBytes is for the output that is kept with them: it is memory of the
	// machine, or container, that the commands run in.
	maxOutcomeBytes = 16 << 20
)

// keep holds a run's outcome until it is taken.
func (r *run) keep() {
	r.links.mu.Lock()
	if r.links.orphan != nil {
		r.links.orphan.Stop()
	}
	r.links.kept = time.AfterFunc(r.server.outcomeWait, r.expire)
	r.links.mu.Unlock()
	r.server.runs.keep(r.workspaceID(), r)
}

// expire forgets an outcome that nobody took.
func (r *run) expire() {
	r.forget()
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	if r.links.current != nil {
		r.links.current.lose(nil)
	}
}

// forget lets go of a run that is over.
func (r *run) forget() {
	r.server.runs.remove(r.workspaceID(), r)
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	if r.links.kept != nil {
		r.links.kept.Stop()
	}
}

func (r *run) workspaceID() string { return r.start.GetWorkspace().GetId() }

func (r *run) carried() bool {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	return r.links.current != nil
}

// keep notes that r is over, and forgets others if there are too many of these.
func (g *registry) keep(id string, r *run) {
	g.mu.Lock()
	if set := g.sets[id]; set == nil || set.active[r.id] != r {
		g.mu.Unlock()
		return // it never began
	}
	g.kept = append(g.kept, r)
	var bytes int64
	for _, r := range g.kept {
		bytes += r.out.holds()
	}
	var over []*run
	for _, r := range g.kept {
		if len(g.kept)-len(over) <= maxOutcomes && bytes <= maxOutcomeBytes {
			break
		}
		if !r.carried() {
			over = append(over, r)
			bytes -= r.out.holds()
		}
	}
	g.mu.Unlock()
	for _, r := range over {
		r.forget()
	}
}

// unkeep takes r from those that are kept. The lock must be held.
func (g *registry) unkeep(r *run) {
	if i := slices.Index(g.kept, r); i >= 0 {
		g.kept = slices.Delete(g.kept, i, i+1)
	}
}

// list returns the runs of a workspace, oldest first.
func (g *registry) list(id string) (runs []*run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if set := g.sets[id]; set != nil {
		for _, r := range set.active {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *run) int {
		return cmp.Or(a.begun.Compare(b.begun), cmp.Compare(a.id, b.id))
	})
	return runs
}

// info is a run in a listing. Its environment is for nobody to see.
func (r *run) info() *berthv1.ListRunsResponse {
	return &berthv1.ListRunsResponse{
		RunId: r.id, Detached: r.start.GetDetached(), Ended: r.out.over(), Started: wire.FromTime(r.begun),
		Args: r.start.GetArgs(), Script: r.start.Script,
	}
}
