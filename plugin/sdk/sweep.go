package sdk

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Sweep removes what the provider keeps beside its workspaces.
func (s *server) Sweep(ctx context.Context, req *berthv1.SweepRequest) (*berthv1.SweepResponse, error) {
	state, err := s.configured()
	if err != nil {
		return nil, err
	}
	sweeper, ok := state.provider.(Sweeper)
	if !ok {
		return nil, unsupported("sweep: provider %s has none", state.name)
	}
	opts := workspace.SweepOptions{DryRun: req.GetDryRun(), OlderThan: time.Duration(req.GetOlderThanNs())}
	if opts.OlderThan < 0 {
		return nil, fmt.Errorf("sweep: age %v is negative: %w", opts.OlderThan, workspace.ErrInvalid)
	}
	removed, err := sweeper.Sweep(ctx, opts)
	if err != nil {
		if len(removed) > 0 {
			err = fmt.Errorf("%w (%d others were removed)", err, len(removed))
		}
		return nil, err
	}
	answer := &berthv1.SweepResponse{}
	for _, l := range removed {
		answer.Leftovers = append(answer.Leftovers, &berthv1.Leftover{Kind: utf8Text(l.Kind), Name: utf8Text(l.Name)})
	}
	return answer, nil
}
