package sdk

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// acquireForRun is [cache.acquire] for a run: a host that gives it up while the
// workspace is being attached is heard. The stream that it returns is to be used
// from then on, whatever err is.
func (s *server) acquireForRun(stream runStream, key *berthv1.WorkspaceKey) (*entry, runStream, error) {
	if e := s.cache.acquireCached(key); e != nil {
		return e, stream, nil
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	early := &earlyStream{runStream: stream, heard: make(chan received, maxEarly)}
	acquired := make(chan struct{})
	early.acquired = acquired
	stopper := stopper{stopCh: make(chan struct{}), cancel: cancel}
	s.goSafely("run", func() { early.listen(func() { stopper.stop(stopCanceled) }) })
	e, err := s.cache.acquire(ctx, key)
	close(acquired)
	if err != nil {
		return nil, early, stopper.orCause(err)
	}
	return e, early, nil
}

// maxEarly is how many messages are heard before a workspace is attached; more
// of them, or of more than a window of stdin, wait in gRPC.
const maxEarly = 64

// received is what one Recv gave.
type received struct {
	m   *berthv1.RunRequest
	err error
}

// earlyStream is a stream that was listened to already.
type earlyStream struct {
	runStream
	acquired <-chan struct{}
	heard    chan received // closed when listen has ended
}

// listen hears the host until the workspace is attached, and one message more,
// for which it may be waiting then.
func (s *earlyStream) listen(stop func()) {
	defer close(s.heard)
	size := 0
	for range maxEarly {
		m, err := s.runStream.Recv()
		s.heard <- received{m, err} // there is room
		if err != nil {
			return
		}
		if m.GetStop() != nil {
			stop()
		}
		select {
		case <-s.acquired:
			return
		default:
		}
		if size += proto.Size(m); size > wire.RunWindow {
			return
		}
	}
}

// Recv gives what was heard first.
func (s *earlyStream) Recv() (*berthv1.RunRequest, error) {
	if r, ok := <-s.heard; ok {
		return r.m, r.err
	}
	return s.runStream.Recv()
}
