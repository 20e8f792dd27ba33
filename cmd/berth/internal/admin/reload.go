package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// Outcome is what came of the reload of one provider.
type Outcome string

// Outcomes of a reload.
const (
	Swapped Outcome = "swapped" // a new process serves in the place of the old one
	Started Outcome = "started" // none ran, and now one does
	// Idle is of a provider that nobody named, and of which no process runs: its
	// next call starts what stands in the folders then.
	Idle Outcome = "not running"
	// Kept is of a provider that nobody named, and which cannot be swapped.
	Kept    Outcome = "kept"
	Refused Outcome = "refused" // what served before serves on
)

// stateStopped is [host.ProviderStatus.State] of a plugin that nobody has needed
// yet, or that ended in order.
const stateStopped = "stopped"

// Process is a plugin that serves.
type Process struct {
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

func processOf(st host.ProviderStatus) Process {
	if st.PID == 0 {
		return Process{}
	}
	return Process{PID: st.PID, Version: st.Version, Path: st.Path, Digest: st.Digest}
}

// Reloaded is what came of the reload of one provider.
type Reloaded struct {
	Provider string  `json:"provider"`
	Outcome  Outcome `json:"outcome"`
	Before   Process `json:"before"`
	After    Process `json:"after"`
	// Reason is why it was refused or kept.
	Reason string `json:"reason,omitempty"`
}

// Reload swaps the plugins of the named providers for what stands in the plugin
// folders now, all at once, and tells of each in the order of their names. Without
// names it does so for all that run, or have failed; one that cannot be swapped is no
// failure then. The error is about a name that is none.
func (s *Server) Reload(ctx context.Context, names []string) ([]Reloaded, error) {
	before := make(map[string]host.ProviderStatus)
	var all []string
	for _, st := range s.host.Providers() {
		before[st.Name] = s.running.identify(st)
		all = append(all, st.Name)
	}
	named := len(names) > 0
	if !named {
		names = all
	}
	for _, name := range names {
		if _, ok := before[name]; !ok {
			return nil, fmt.Errorf("unknown provider %q: configured: %s: %w", name, strings.Join(all, ", "), workspace.ErrInvalid)
		}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	list := make([]Reloaded, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { list[i] = s.reloadOne(ctx, before[name], named) })
	}
	wg.Wait()
	return list, nil
}

func (s *Server) reloadOne(ctx context.Context, before host.ProviderStatus, named bool) Reloaded {
	r := Reloaded{Provider: before.Name, Before: processOf(before)}
	if !named && before.State == stateStopped {
		r.Outcome = Idle
		return r
	}
	err := s.host.Reload(ctx, before.Name)
	r.After = processOf(s.statusOf(before.Name))
	switch {
	case err == nil && r.Before.PID == 0:
		r.Outcome = Started
	case err == nil:
		r.Outcome = Swapped
	case !named && errors.Is(err, errors.ErrUnsupported):
		r.Outcome, r.Reason = Kept, err.Error()
	default:
		r.Outcome, r.Reason = Refused, err.Error()
	}
	return r
}
