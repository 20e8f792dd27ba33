package sdk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// stopCause says why a command is stopped before its end, and how.
type stopCause struct {
	err   func(survivors string) error
	grace time.Duration
	// gone: the outcome does not wait for the command, since its workspace is not
	// there.
	gone bool
}

// stopCanceled is the caller's cancellation.
var stopCanceled = stopCause{err: stoppedBy(context.Canceled), grace: workspace.StopGrace}

// stopGone is the end of the workspace.
func stopGone(err error) stopCause {
	return stopCause{err: func(string) error { return err }, gone: true}
}

func stoppedBy(err error) func(string) error {
	return func(survivors string) error {
		if survivors != "" {
			return fmt.Errorf("command stopped: %w; not stopped: %s", err, survivors)
		}
		return fmt.Errorf("command stopped: %w", err)
	}
}

func stopInvalid(err error) stopCause {
	return stopCause{err: stoppedBy(err), grace: workspace.StopGrace}
}

// stopper ends something for the first cause given.
type stopper struct {
	stopOne sync.Once
	stopCh  chan struct{} // closed when cause is set
	cause   stopCause
	cancel  context.CancelFunc
}

// stop stops it for the first cause given.
func (s *stopper) stop(cause stopCause) {
	s.stopOne.Do(func() {
		s.cause = cause
		close(s.stopCh)
		s.cancel()
	})
}

// orCause is the reason for which a call was cancelled, or its own error.
func (s *stopper) orCause(err error) error {
	select {
	case <-s.stopCh:
		return s.cause.err("")
	default:
		return err
	}
}
