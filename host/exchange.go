package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// takenStep is how much output is taken before the plugin is told: a part of
// the window, so that a command which writes on is never held up.
const takenStep = wire.RunWindow / 4

// link is one stream that carries a run, and the plugin that it leads to.
type link struct {
	inst    *supervisor.Instance
	stream  grpc.BidiStreamingClient[berthv1.RunRequest, berthv1.RunResponse]
	ctx     context.Context //nolint:containedctx // of the stream
	cancel  context.CancelCauseFunc
	started bool // said on this stream
	// moving: it is to be left for another plugin; guarded by the run's mutex.
	moving bool
	stay   time.Time // before then it is not left
	// repeats is set where the run's start was sent again: what ended the stream
	// before, of which it is not known whether the start was heard.
	repeats error
}

func (r *run) newLink(inst *supervisor.Instance) *link {
	l := &link{inst: inst}
	l.ctx, l.cancel = context.WithCancelCause(r.callCtx)
	return l
}

// exchange talks with the plugin until there is an outcome or there will be none,
// over one stream after the other if the run outlives them.
func (r *run) exchange() {
	defer r.cancel()
	l := r.newLink(r.inst)
	err := r.open(l)
	var breaks breaks
	for {
		if err == nil {
			err = r.converse(l)
		}
		l.cancel(nil)
		if err == nil {
			l.inst.Release()
			return
		}
		if leftOnPurpose(l, err) {
			if l, err = r.move(l); err != nil {
				r.over(err)
				return
			}
			continue
		}
		again, cause := r.broke(l, err)
		l.inst.Release()
		if l.repeats != nil && !r.hasStarted() {
			if errors.Is(cause, fs.ErrExist) { // it was heard after all
				again, cause = true, l.repeats
			} else if !again {
				cause = r.lost(l.repeats, cause)
			}
		}
		if !again || !breaks.another() {
			r.over(cause)
			return
		}
		if l, cause = r.reattach(cause); cause != nil {
			r.over(cause)
			return
		}
		err = nil
	}
}

// open opens the first stream of a run.
func (r *run) open(l *link) error {
	if r.follow != nil {
		return r.firstAttach(l)
	}
	r.sent = time.Now()
	stream, err := l.inst.Client().Run(l.ctx)
	if err != nil {
		return err
	}
	l.stream = stream
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = l
	return nil
}

// converse sends and receives until the outcome, for which it returns nil, and
// then until the plugin knows that it was taken. The stream is read without a
// pause, whatever the caller's writers do: what they have not taken waits in
// bounded buffers of the run's own.
func (r *run) converse(l *link) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	defer r.unlink(l)
	sending.Go(func() { r.sendAll(l) })
	if r.durable {
		sending.Go(func() { r.leaveInTime(l) })
	}
	for {
		msg, err := l.stream.Recv()
		if err != nil {
			return err
		}
		over, err := r.accept(l, msg)
		if err != nil {
			return err
		}
		if !over {
			continue
		}
		if !r.durable {
			l.inst.Release() // what is left to do needs no plugin
		}
		r.over(nil)
		if r.durable {
			_, err := l.stream.Recv() // its end: nothing comes after an outcome
			if leftOnPurpose(l, err) {
				return err
			}
		}
		return nil
	}
}

// unlink leaves a stream: what was sent on it and not answered is lost.
func (r *run) unlink(l *link) {
	l.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = nil
	r.loseSignals()
	r.changed.Broadcast()
}

// broke tells why a stream ended without an outcome, and whether the run may be
// found again.
func (r *run) broke(l *link, err error) (again bool, _ error) {
	var protocol *protocolError
	switch {
	case errors.As(err, &protocol):
		r.disown()
		return false, r.h.p.fault(l.inst, r.op, protocol.reason)
	case errors.Is(err, io.EOF):
		r.disown()
		return false, r.h.p.fault(l.inst, r.op, "the plugin ended the command without its outcome")
	case r.callCtx.Err() != nil: // by supervise: nobody asks any more
		return false, err
	}
	var own *ownError
	if errors.As(err, &own) {
		r.disown()
		return false, r.op.wrap(own.err)
	}
	died, cause := r.h.p.failure(context.WithoutCancel(r.ctx), l.ctx, l.inst, r.op, err)
	return r.durable && r.mayBeFound(l, died, err, cause), cause
}

// disown has a command stopped that this side can make nothing of any more.
func (r *run) disown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = r.stopping || !r.goesOn()
}

// over tells that no other stream will bring anything: with an outcome if err is
// nil. What may come after an outcome, to tell the plugin that it was taken, does
// not matter here.
func (r *run) over(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOver() {
		return
	}
	r.failure = err
	for _, o := range r.out {
		o.ended = true
	}
	close(r.ended)
	r.changed.Broadcast()
}

// protocolError is a message that the plugin may not send.
type protocolError struct{ reason string }

func (e *protocolError) Error() string { return e.reason }

// ownError is a reason of this side's for not going on with a stream.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func garbage(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// accept takes one message. It reports whether that was the outcome.
func (r *run) accept(l *link, msg *berthv1.RunResponse) (over bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changed.Broadcast()
	switch m := msg.GetMessage().(type) {
	case *berthv1.RunResponse_Started:
		if l.started {
			return false, garbage("the plugin said twice that the command was started")
		}
		registry := m.Started.GetRunRegistry()
		if len(registry) > wire.MaxRunRegistry {
			return false, garbage("the plugin told a registry of runs of %d bytes", len(registry))
		}
		if len(registry) > 0 {
			r.h.noteRegistry(registry)
		}
		l.started = true
		r.noteStarted()
	case *berthv1.RunResponse_Stdout:
		return false, r.receive(r.out[0], m.Stdout)
	case *berthv1.RunResponse_Stderr:
		return false, r.receive(r.out[1], m.Stderr)
	case *berthv1.RunResponse_StdinTaken:
		return false, r.in.accept(m.StdinTaken)
	case *berthv1.RunResponse_SignalResult:
		r.signalled(m.SignalResult)
	case *berthv1.RunResponse_Outcome:
		if r.outcome != nil {
			return true, nil // told again, on a stream that only takes the answer
		}
		if err := r.checkOutcome(m.Outcome); err != nil {
			return false, err
		}
		r.outcome = m.Outcome
		return true, nil
	default:
		if len(msg.ProtoReflect().GetUnknown()) > 0 {
			return false, nil // of a newer version
		}
		return false, garbage("the plugin sent a message of no known kind")
	}
	return false, nil
}

// receive takes output, as far as the limits allow. The caller holds r.mu.
func (r *run) receive(o *output, chunk *berthv1.RunOutput) error {
	data := chunk.GetData()
	if chunk.GetOffset() != o.received {
		return garbage("%s is incomplete: %d bytes arrived, and the next ones are said to begin at %d", o.name, o.received, chunk.GetOffset())
	}
	if r.breakage != nil {
		o.received += int64(len(data))
		o.taken = o.received
		return nil //nolint:nilerr // the run has its error: what still arrives is dropped
	}
	other := r.out[0].pending() + r.out[1].pending()
	if r.follow != nil && o.writer == nil && len(r.out[0].collected)+len(r.out[1].collected)+len(data) > workspace.DefaultOutputLimit {
		r.breakOff(fmt.Errorf("more than %d bytes of output to collect: pass some over, or give writers", workspace.DefaultOutputLimit))
		return nil
	}
	// One message more than the window: who counts before sending may be there.
	if other+int64(len(data)) > wire.RunWindow+wire.ChunkSize {
		return garbage("the plugin sent more than %d bytes of output that were not taken", wire.RunWindow)
	}
	if total := r.out[0].received + r.out[1].received; r.limit > 0 && total+int64(len(data)) > r.limit {
		o.accept(data[:max(r.limit-total, 0)])
		o.received += int64(len(data)) - max(r.limit-total, 0)
		r.breakage = &workspace.OutputLimitError{Limit: r.limit}
		for _, o := range r.out {
			o.taken = o.received
		}
		close(r.broken)
		return nil
	}
	o.accept(data)
	return nil
}

// checkOutcome refuses an outcome that hides a loss. The caller holds r.mu.
func (r *run) checkOutcome(outcome *berthv1.RunOutcome) error {
	if outcome.GetResult() == nil {
		return garbage("the plugin sent an outcome without a result")
	}
	if outcome.GetError() != nil {
		return nil // an error it is, whatever arrived before
	}
	if code := outcome.GetExited().GetCode(); code < 0 {
		return garbage("the plugin sent the exit code %d, which is none", code)
	}
	for i, end := range []int64{outcome.GetStdoutEnd(), outcome.GetStderrEnd()} {
		if o := r.out[i]; end != o.received {
			return garbage("%s is incomplete: %d bytes arrived of %d", o.name, o.received, end)
		}
	}
	return nil
}

// noteStarted lets Start return. The caller holds r.mu.
func (r *run) noteStarted() {
	select {
	case <-r.started:
	default:
		close(r.started)
	}
}

// sendAll sends until the run is finished or the stream breaks, which is for
// the receiving side to tell.
func (r *run) sendAll(l *link) {
	for {
		msg := r.next(l)
		if msg == nil {
			return
		}
		if err := l.stream.Send(msg); err != nil {
			return
		}
		if msg.GetTaken().GetOutcome() {
			_ = l.stream.CloseSend() // what is wrong with the stream is told by Recv
			return
		}
	}
}

// next waits for something to send, most urgent first; nil is the end.
func (r *run) next(l *link) *berthv1.RunRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		over := r.outcome != nil
		switch {
		case r.link != l, over && !r.durable, r.finished && !over:
			return nil
		case r.taken:
			taken := r.tell()
			taken.Outcome = true
			return &berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: taken}}
		case over:
			// Only what is handed over matters to the plugin now.
		default:
			if msg := r.dequeue(l); msg != nil {
				return msg
			}
		}
		if r.out[0].untold()+r.out[1].untold() >= takenStep {
			return &berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: r.tell()}}
		}
		if !over {
			if msg := r.in.next(); msg != nil {
				return msg
			}
		}
		r.changed.Wait()
	}
}

// dequeue takes the next message that waits, or nil. On a stream that is to be left
// no signal is sent: whether it arrived would not be known. The caller holds r.mu.
func (r *run) dequeue(l *link) *berthv1.RunRequest {
	for i, msg := range r.queue {
		s := r.signals[msg.GetSignal().GetSequence()]
		if s != nil && l.moving {
			continue
		}
		r.queue = slices.Delete(r.queue, i, i+1)
		if s != nil {
			s.sent = true
		}
		return msg
	}
	return nil
}

// tell is what the caller has been handed. The caller holds r.mu.
func (r *run) tell() *berthv1.RunTaken {
	for _, o := range r.out {
		o.told = o.taken
	}
	return &berthv1.RunTaken{StdoutOffset: r.out[0].taken, StderrOffset: r.out[1].taken}
}
