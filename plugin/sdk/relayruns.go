package sdk

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

type listRunsStream = grpc.ServerStreamingServer[berthv1.ListRunsResponse]

// maxListedRuns is how many runs of one workspace a guest is believed: far more
// processes than a machine has.
const maxListedRuns = 1 << 20

func (s *server) relayListRuns(e *entry, host listRunsStream) error {
	ctx, cancel := context.WithCancel(host.Context())
	g, err := s.guest(ctx, e)
	if err != nil {
		cancel()
		return err
	}
	defer g.release()
	defer cancel() // before the release
	guest, err := g.conn.Client.ListRuns(ctx, &berthv1.ListRunsRequest{Workspace: g.conn.Key}, guestLimit)
	if err != nil {
		return g.failure(ctx, err)
	}
	for range maxListedRuns {
		m, err := guest.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return g.failure(ctx, err)
		}
		if !runIDPattern.MatchString(m.GetRunId()) {
			return g.nonsense("with a run called %q", shorten(m.GetRunId()))
		}
		if err := host.Send(&berthv1.ListRunsResponse{
			RunId: m.GetRunId(), Detached: m.GetDetached(), Ended: m.GetEnded(),
			Started: wire.FromTime(wire.ToTime(m.GetStarted())), Args: m.GetArgs(), Script: m.Script,
		}); err != nil {
			return err
		}
	}
	return g.nonsense("with more than %d runs", maxListedRuns)
}

// stopUnknownRun stops a run that is not this plugin's own: it may be a guest's.
func (s *server) stopUnknownRun(ctx context.Context, req *berthv1.StopRunRequest, unknown error) (*berthv1.StopRunResponse, error) {
	err := s.withWorkspace(ctx, req.GetWorkspace(), func(e *entry) error {
		if e.target == nil {
			return unknown
		}
		_, err := callGuest(ctx, s, e, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.StopRunResponse, error) {
			return c.StopRun(ctx, &berthv1.StopRunRequest{Workspace: key, RunId: req.GetRunId()}, guestLimit)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &berthv1.StopRunResponse{}, nil
}
