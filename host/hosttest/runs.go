package hosttest

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"github.com/berth-dev/berth/shared/workspace"
)

// keep lets a command be found again.
func (f *Fake) keep(w *fakeWorkspace, id string, c *command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commandsOf == nil {
		f.commandsOf = make(map[workspace.Ref]map[string]*command)
	}
	if f.commandsOf[w.ref] == nil {
		f.commandsOf[w.ref] = make(map[string]*command)
	}
	f.commandsOf[w.ref][id] = c
}

func (f *Fake) forget(w *fakeWorkspace, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.commandsOf[w.ref], id)
}

// kept returns the commands of a workspace that can be found.
func (w *fakeWorkspace) kept(ctx context.Context) (map[string]*command, error) {
	if _, err := w.open(ctx); err != nil {
		return nil, err
	}
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	return maps.Clone(w.fake.commandsOf[w.ref]), nil
}

func (w *fakeWorkspace) find(ctx context.Context, id string) (*command, error) {
	if err := workspace.ValidateRunID(id); err != nil {
		return nil, err
	}
	kept, err := w.kept(ctx)
	if err != nil {
		return nil, err
	}
	if c := kept[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("run %s: %w", id, fs.ErrNotExist)
}

// ListRuns tells the commands that hang, and those that were started detached,
// until AttachRun has told their end.
func (w *fakeWorkspace) ListRuns(ctx context.Context) iter.Seq2[workspace.RunInfo, error] {
	return func(yield func(workspace.RunInfo, error) bool) {
		kept, err := w.kept(ctx)
		if err != nil {
			yield(workspace.RunInfo{}, err)
			return
		}
		for _, id := range slices.Sorted(maps.Keys(kept)) {
			c := kept[id]
			info := workspace.RunInfo{ID: id, Detached: c.cmd.Detached, Ended: c.ended(), Started: c.started, Args: c.cmd.Args, Script: c.cmd.Script}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// AttachRun follows a command that was started before.
func (w *fakeWorkspace) AttachRun(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c, err := w.find(ctx, id)
	if err != nil {
		return nil, err
	}
	p := &process{id: id, command: c, done: make(chan struct{})}
	go func() {
		p.follow(ctx, opts.Stdout, opts.Stderr, [2]int64{opts.StdoutOffset, opts.StderrOffset}, true)
		if c.ended() {
			w.fake.forget(w, id)
		}
	}()
	return p, nil
}

// StopRun ends a command that hangs.
func (w *fakeWorkspace) StopRun(ctx context.Context, id string) error {
	c, err := w.find(ctx, id)
	if err != nil {
		return err
	}
	w.fake.stop(c)
	return nil
}

func (f *Fake) stop(c *command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-c.stopped:
	default:
		close(c.stopped)
	}
}
