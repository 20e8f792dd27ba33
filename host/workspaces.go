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

func (p *provider) destroy(ctx context.Context, ref workspace.Ref) error {
	op := operation{name: "destroy", on: ref.String(), changes: true}
	_, err := unary(ctx, p, op, func(ctx context.Context, c berthv1.ProviderClient) (*berthv1.DestroyResponse, error) {
		return c.Destroy(ctx, &berthv1.DestroyRequest{Id: ref.ID})
	})
	return err
}

func (p *provider) sweep(ctx context.Context, opts workspace.SweepOptions) ([]workspace.Leftover, error) {
	op := operation{name: "sweep", on: "provider " + p.name, changes: !opts.DryRun}
	answer, err := unary(ctx, p, op, func(ctx context.Context, c berthv1.ProviderClient) (*berthv1.SweepResponse, error) {
		return c.Sweep(ctx, &berthv1.SweepRequest{DryRun: opts.DryRun, OlderThanNs: int64(opts.OlderThan)})
	})
	if err != nil {
		return nil, err
	}
	leftovers := make([]workspace.Leftover, 0, len(answer.GetLeftovers()))
	for _, l := range answer.GetLeftovers() {
		leftovers = append(leftovers, workspace.Leftover{Kind: l.GetKind(), Name: l.GetName()})
	}
	return leftovers, nil
}

func validateListOptions(opts workspace.ListOptions) error {
	if opts.OlderThan < 0 {
		return fmt.Errorf("list: OlderThan %v is negative: %w", opts.OlderThan, workspace.ErrInvalid)
	}
	if err := workspace.ValidateLabels(opts.Labels); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return nil
}

// list asks again once if the plugin dies of it (contract B2), and passes over
// what it told already.
func (p *provider) list(ctx context.Context, opts workspace.ListOptions) iter.Seq2[workspace.Info, error] {
	return func(yield func(workspace.Info, error) bool) {
		seen := make(map[string]bool)
		for retried := false; ; retried = true {
			died, more, err := p.listOnce(ctx, opts, seen, yield)
			switch {
			case !more || err == nil:
				return
			case !died || retried:
				yield(workspace.Info{}, err)
				return
			}
		}
	}
}

func (p *provider) listOnce(ctx context.Context, opts workspace.ListOptions, seen map[string]bool, yield func(workspace.Info, error) bool) (died, more bool, _ error) {
	op := operation{name: "list", on: "provider " + p.name}
	inst, err := p.acquire(ctx)
	if err != nil {
		return false, true, op.wrap(err)
	}
	defer inst.Release()
	callCtx, watch := watched(ctx, p.host.deadlines.Idle)
	defer watch.end()
	watch.begin()
	stream, err := inst.Client().List(callCtx, &berthv1.ListRequest{Labels: opts.Labels, OlderThanNs: int64(opts.OlderThan)})
	for err == nil {
		var msg *berthv1.ListResponse
		watch.begin()
		msg, err = stream.Recv()
		watch.pause()
		if err != nil {
			break
		}
		info := workspace.Info{
			Ref:  workspace.Ref{Provider: p.name, ID: msg.GetId()},
			Name: msg.GetName(), Labels: msg.GetLabels(), Created: wire.ToTime(msg.GetCreated()),
			State: msg.GetState(), Details: msg.GetDetails(),
		}
		if err := info.Ref.Validate(); err != nil {
			return false, true, p.fault(inst, op, fmt.Sprintf("the plugin listed an id that is none: %v", err))
		}
		if seen[msg.GetId()] {
			continue
		}
		seen[msg.GetId()] = true
		if !yield(info, nil) {
			return false, false, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return false, true, nil
	}
	died, err = p.failure(ctx, callCtx, inst, op, err)
	return died, true, err
}
