package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// takenStep is how much output is taken before the plugin is told: a part of
// the window, so that a command which writes on is never held up.
const takenStep = wire.RunWindow / 4

// maxSignals is how many signals may be under way. A plugin that answers none
// must not make a queue grow.
const maxSignals = 64

// exchange opens the stream and receives until it is over. The stream is read
// without a pause, whatever the caller's writers do: what they have not taken
// waits in bounded buffers of the run's own.
func (r *run) exchange() {
	var sending sync.WaitGroup
	defer sending.Wait()
	defer r.cancel()
	stream, err := r.inst.Client().Run(r.callCtx)
	if err == nil {
		sending.Go(func() { r.sendAll(stream) })
	}
	for err == nil {
		var msg *berthv1.RunResponse
		if msg, err = stream.Recv(); err != nil {
			break
		}
		var over bool
		if over, err = r.accept(msg); over {
			break
		}
	}
	r.over(err)
}

// over tells why the stream ended: with an outcome if err is nil.
func (r *run) over(err error) {
	var protocol *protocolError
	switch {
	case err == nil:
	case errors.As(err, &protocol):
		err = r.h.p.fault(r.inst, r.op, protocol.reason)
	case errors.Is(err, io.EOF):
		err = r.h.p.fault(r.inst, r.op, "the plugin ended the command without its outcome")
	case r.callCtx.Err() != nil: // by supervise: nobody asks any more
	default:
		_, err = r.h.p.failure(context.WithoutCancel(r.ctx), r.callCtx, r.inst, r.op, err)
	}
	r.inst.Release() // what is left to do needs no plugin
	r.mu.Lock()
	defer r.mu.Unlock()
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

func garbage(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// accept takes one message. It reports whether that was the outcome.
func (r *run) accept(msg *berthv1.RunResponse) (over bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changed.Broadcast()
	switch m := msg.GetMessage().(type) {
	case *berthv1.RunResponse_Started:
		select {
		case <-r.started:
			return false, garbage("the plugin said twice that the command was started")
		default:
			close(r.started)
		}
	case *berthv1.RunResponse_Stdout:
		return false, r.receive(r.out[0], m.Stdout)
	case *berthv1.RunResponse_Stderr:
		return false, r.receive(r.out[1], m.Stderr)
	case *berthv1.RunResponse_StdinTaken:
		return false, r.in.accept(m.StdinTaken)
	case *berthv1.RunResponse_SignalResult:
		if answer, ok := r.signals[m.SignalResult.GetSequence()]; ok {
			delete(r.signals, m.SignalResult.GetSequence())
			var err error
			if detail := m.SignalResult.GetError(); detail != nil {
				err = r.h.p.remote(detail)
			}
			answer <- err
		}
	case *berthv1.RunResponse_Outcome:
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

// send queues what goes before any stdin.
func (r *run) send(msg *berthv1.RunRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, msg)
	r.changed.Broadcast()
}

// sendAll sends until the run is finished or the stream breaks, which is for
// the receiving side to tell.
func (r *run) sendAll(stream berthv1.Provider_RunClient) {
	for {
		msg := r.next()
		if msg == nil {
			return
		}
		if err := stream.Send(msg); err != nil {
			return
		}
	}
}

// next waits for something to send, most urgent first; nil is the end.
func (r *run) next() *berthv1.RunRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		select {
		case <-r.ended:
			return nil
		default:
		}
		if r.finished {
			return nil
		}
		if len(r.queue) > 0 {
			msg := r.queue[0]
			r.queue = r.queue[1:]
			return msg
		}
		stdout, stderr := r.out[0], r.out[1]
		if stdout.untold()+stderr.untold() >= takenStep {
			stdout.told, stderr.told = stdout.taken, stderr.taken
			return &berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: stdout.taken, StderrOffset: stderr.taken}}}
		}
		if msg := r.in.next(); msg != nil {
			return msg
		}
		r.changed.Wait()
	}
}

// Signal sends to the command's direct process.
func (r *run) Signal(ctx context.Context, sig workspace.Signal) error {
	op := r.op
	op.name = "signal"
	if err := sig.Validate(); err != nil {
		return op.wrap(err)
	}
	answer := make(chan error, 1)
	r.mu.Lock()
	if len(r.signals) >= maxSignals {
		r.mu.Unlock()
		return op.wrap(fmt.Errorf("%d signals are not yet answered: %w", maxSignals, workspace.ErrTransient))
	}
	r.sequence++
	sequence := r.sequence
	r.signals[sequence] = answer
	r.queue = append(r.queue, &berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: string(sig), Sequence: sequence}}})
	r.changed.Broadcast()
	r.mu.Unlock()

	wait := time.NewTimer(r.h.p.host.deadlines.Read)
	defer wait.Stop()
	select {
	case err := <-answer:
		return op.wrapIfAny(err)
	case <-r.ended:
		select {
		case err := <-answer: // it was answered before the end
			return op.wrapIfAny(err)
		default:
		}
		if r.failure != nil {
			return r.failure
		}
		return op.wrap(os.ErrProcessDone)
	case <-ctx.Done():
		return op.wrap(ctx.Err())
	case <-wait.C:
		return r.h.p.fault(r.inst, op, errDeadline.Error())
	}
}
