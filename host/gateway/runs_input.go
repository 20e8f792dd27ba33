package gateway

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// errInputEnded is what a write to stdin gets when nobody reads it any more.
var errInputEnded = errors.New("stdin is closed")

// runInput is the stdin of a run, written to by one request after the other. It
// holds no more than the piece that the command is about to take.
type runInput struct {
	turn      chan struct{} // held by who writes
	pieces    chan []byte
	end       chan struct{} // closed at the end of file
	abandoned chan struct{} // closed when the run has ended

	taken   atomic.Int64
	pending []byte // of the reader
}

func newRunInput() *runInput {
	return &runInput{turn: make(chan struct{}, 1), pieces: make(chan []byte), end: make(chan struct{}), abandoned: make(chan struct{})}
}

// Read is the host's.
func (in *runInput) Read(p []byte) (int, error) {
	if len(in.pending) == 0 {
		select {
		case in.pending = <-in.pieces:
		case <-in.end:
			return 0, io.EOF
		case <-in.abandoned:
			return 0, errInputEnded
		}
	}
	n := copy(p, in.pending)
	in.pending = in.pending[n:]
	return n, nil
}

// abandon ends all writing. Once.
func (in *runInput) abandon() { close(in.abandoned) }

// begin waits until it is a request's turn, which then calls finish. It returns how
// many bytes were taken before.
func (in *runInput) begin(ctx context.Context) (taken int64, err error) {
	select {
	case in.turn <- struct{}{}:
	case <-in.abandoned:
		return in.taken.Load(), errInputEnded
	case <-ctx.Done():
		return in.taken.Load(), ctx.Err()
	}
	if isClosed(in.end) || isClosed(in.abandoned) {
		in.finish()
		return in.taken.Load(), errInputEnded
	}
	return in.taken.Load(), nil
}

// finish ends a request's turn.
func (in *runInput) finish() { <-in.turn }

// close is the end of file. The caller has the turn.
func (in *runInput) close() { close(in.end) }

// write hands a piece on, which is not to be changed any more.
func (in *runInput) write(ctx context.Context, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	select {
	case in.pieces <- p:
		in.taken.Add(int64(len(p)))
		return nil
	case <-in.abandoned:
		return errInputEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
