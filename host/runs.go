package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// findsRuns opens the workspace and fails if its runs cannot be found again.
func (h *handle) findsRuns(ctx context.Context, op operation) (*session, error) {
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	if !s.features.Has(workspace.FeatureAttachRun) {
		return nil, op.wrap(fmt.Errorf("runs of this workspace are not found again: %w", errors.ErrUnsupported))
	}
	return s, nil
}

// ListRuns tells the runs whose outcome was not taken. It asks again once if the
// plugin dies of it (contract B2), and passes over what it told already.
func (h *handle) ListRuns(ctx context.Context) iter.Seq2[workspace.RunInfo, error] {
	return func(yield func(workspace.RunInfo, error) bool) {
		s, err := h.findsRuns(ctx, h.op("list runs", false))
		if err != nil {
			yield(workspace.RunInfo{}, err)
			return
		}
		seen := make(map[string]bool)
		for retried := false; ; retried = true {
			died, more, err := h.listRunsOnce(ctx, s, seen, yield)
			switch {
			case !more || err == nil:
				return
			case !died || retried:
				yield(workspace.RunInfo{}, err)
				return
			}
		}
	}
}

func (h *handle) listRunsOnce(ctx context.Context, s *session, seen map[string]bool, yield func(workspace.RunInfo, error) bool) (died, more bool, _ error) {
	op := h.op("list runs", false)
	inst, err := h.p.acquire(ctx)
	if err != nil {
		return false, true, op.wrap(err)
	}
	defer inst.Release()
	callCtx, watch := watched(ctx, h.p.host.deadlines.Idle)
	defer watch.end()
	watch.begin()
	stream, err := inst.Client().ListRuns(callCtx, &berthv1.ListRunsRequest{Workspace: s.key})
	for err == nil {
		var msg *berthv1.ListRunsResponse
		watch.begin()
		msg, err = stream.Recv()
		watch.pause()
		if err != nil {
			break
		}
		if err := workspace.ValidateRunID(msg.GetRunId()); err != nil {
			return false, true, h.p.fault(inst, op, fmt.Sprintf("the plugin listed a run without a valid id: %v", err))
		}
		if seen[msg.GetRunId()] {
			continue
		}
		seen[msg.GetRunId()] = true
		if !yield(runInfo(msg), nil) {
			return false, false, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return false, true, nil
	}
	died, err = h.p.failure(ctx, callCtx, inst, op, err)
	return died, true, err
}

func runInfo(msg *berthv1.ListRunsResponse) workspace.RunInfo {
	return workspace.RunInfo{
		ID: msg.GetRunId(), Detached: msg.GetDetached(), Ended: msg.GetEnded(), Started: wire.ToTime(msg.GetStarted()),
		Args: wire.ToBytesList(msg.GetArgs()), Script: string(msg.GetScript()),
	}
}

// StopRun stops a run's whole process tree.
func (h *handle) StopRun(ctx context.Context, id string) error {
	op := h.op("stop run", true)
	op.runID = id
	if err := workspace.ValidateRunID(id); err != nil {
		return fmt.Errorf("%s: stop run: %w", op.on, err)
	}
	s, err := h.findsRuns(ctx, op)
	if err != nil {
		return err
	}
	return h.stopRun(ctx, op, s.key)
}

func (h *handle) stopRun(ctx context.Context, op operation, key *berthv1.WorkspaceKey) error {
	_, err := unary(ctx, h.p, op, func(ctx context.Context, c berthv1.ProviderClient) (*berthv1.StopRunResponse, error) {
		return c.StopRun(ctx, &berthv1.StopRunRequest{Workspace: key, RunId: op.runID})
	})
	return err
}

// AttachRun follows a run.
func (h *handle) AttachRun(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error) {
	op := h.op("attach run", false)
	op.runID = id
	if err := workspace.ValidateRunID(id); err != nil {
		return nil, fmt.Errorf("%s: attach run: %w", op.on, err)
	}
	if err := opts.Validate(); err != nil {
		return nil, op.wrap(err)
	}
	s, err := h.findsRuns(ctx, op)
	if err != nil {
		return nil, err
	}
	r := h.newFollowing(ctx, op, opts, s)
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	return r.running() //nolint:contextcheck // it has its own
}
