package sdk

import (
	"fmt"
	"io/fs"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// AttachRun takes up a run whose stream broke.
func (s *server) AttachRun(stream runStream) error {
	if _, err := s.configured(); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("attaching to a run: receiving the first message: %w", err)
	}
	attach := first.GetAttach()
	switch {
	case attach == nil:
		return fmt.Errorf("attaching to a run: the first message is not attach: %w", workspace.ErrInvalid)
	case attach.GetStdoutOffset() < 0 || attach.GetStderrOffset() < 0:
		return fmt.Errorf("attaching to run %q: a negative offset: %w", attach.GetRunId(), workspace.ErrInvalid)
	}
	e, stream, err := s.acquireForRun(stream, attach.GetWorkspace())
	if err != nil {
		return err
	}
	defer s.cache.release(e)
	switch {
	case e.target != nil:
		return s.relayAttach(e, stream, attach)
	case !s.def.durableRuns:
		return unsupported("attaching to a run: this workspace keeps none")
	}
	r, err := s.runs.find(e.id, attach.GetRunId())
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("run %q is over, and its outcome was taken or not kept any longer: %w", attach.GetRunId(), fs.ErrNotExist)
	}
	l := newLink(r, stream)
	if err := r.attach(l, [2]int64{stdout: attach.GetStdoutOffset(), stderr: attach.GetStderrOffset()}); err != nil {
		return err
	}
	return l.carry()
}

// ListRuns tells the runs whose outcome was not taken.
func (s *server) ListRuns(req *berthv1.ListRunsRequest, stream listRunsStream) error {
	return s.withWorkspace(stream.Context(), req.GetWorkspace(), func(e *entry) error {
		switch {
		case !e.features.Has(workspace.FeatureAttachRun):
			return unsupported("listing runs: this workspace keeps none")
		case e.target != nil:
			return s.relayListRuns(e, stream)
		}
		for _, r := range s.runs.list(e.id) {
			if err := stream.Send(r.info()); err != nil {
				return err
			}
		}
		return nil
	})
}
