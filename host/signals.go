package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxSignals is how many signals may be under way. A plugin that answers none
// must not make a queue grow.
const maxSignals = 64

// pendingSignal waits for the plugin's word.
type pendingSignal struct {
	answer chan error // holds one
	sent   bool       // on the stream in use
}

var errSignalLost = errors.New("the stream to the plugin broke before it was answered: whether it was delivered is not known")

// Signal sends to the command's direct process.
func (r *run) Signal(ctx context.Context, sig workspace.Signal) error {
	op := r.op
	op.name = "signal"
	if err := sig.Validate(); err != nil {
		return op.wrap(err)
	}
	pending := &pendingSignal{answer: make(chan error, 1)}
	r.mu.Lock()
	if len(r.signals) >= maxSignals {
		r.mu.Unlock()
		return op.wrap(fmt.Errorf("%d signals are not yet answered: %w", maxSignals, workspace.ErrTransient))
	}
	r.sequence++
	sequence := r.sequence
	r.signals[sequence] = pending
	r.queue = append(r.queue, &berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: string(sig), Sequence: sequence}}})
	r.changed.Broadcast()
	r.mu.Unlock()

	wait := time.NewTimer(r.h.p.host.deadlines.Read)
	defer wait.Stop()
	select {
	case err := <-pending.answer:
		return op.wrapIfAny(err)
	case <-r.ended:
		select {
		case err := <-pending.answer: // it was answered before the end
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
		return r.h.p.fault(r.lastInstance(), op, errDeadline.Error())
	}
}

// signalled takes the plugin's word for a signal. The caller holds r.mu.
func (r *run) signalled(result *berthv1.RunSignalResult) {
	pending, ok := r.signals[result.GetSequence()]
	if !ok {
		return
	}
	delete(r.signals, result.GetSequence())
	var err error
	if detail := result.GetError(); detail != nil {
		err = r.h.p.remote(detail)
	}
	pending.answer <- err
}

// loseSignals answers those that were sent on a stream that is over. The caller
// holds r.mu.
func (r *run) loseSignals() {
	if r.outcome != nil {
		return // the command has ended, and that is their answer
	}
	for sequence, pending := range r.signals {
		if pending.sent {
			delete(r.signals, sequence)
			pending.answer <- errSignalLost
		}
	}
}
