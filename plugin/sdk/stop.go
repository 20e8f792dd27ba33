package sdk

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Stop ends what runs in a workspace, its commands first, and keeps its files.
func (s *server) Stop(ctx context.Context, req *berthv1.StopRequest) (*berthv1.StopResponse, error) {
	state, err := s.configured()
	if err != nil {
		return nil, err
	}
	name, err := workspace.DecodeID(req.GetId())
	if err != nil {
		return nil, err
	}
	stopper, ok := state.provider.(Stopper)
	if !ok {
		return nil, unsupported("provider %s cannot stop a workspace", state.name)
	}
	s.runs.end(ctx, req.GetId(), fmt.Errorf("workspace %s is being stopped: %w", req.GetId(), workspace.ErrUnavailable))
	if err := stopper.Stop(ctx, name); err != nil {
		return nil, err
	}
	s.cache.forgetID(req.GetId()) // the next call attaches, which starts it
	return &berthv1.StopResponse{}, nil
}
