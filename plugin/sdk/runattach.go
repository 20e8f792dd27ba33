package sdk

import (
	"fmt"

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
	if e.target != nil {
		return s.relayAttach(e, stream, attach)
	}
	return unsupported("attaching to a run: this workspace keeps none")
}
