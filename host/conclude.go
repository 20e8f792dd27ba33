package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// stopConfirm is how long a cancelled caller waits for the word that the
	// command's tree was stopped: its grace, and a little for the way.
	stopConfirm = workspace.StopGrace + 500*time.Millisecond
	// timeoutConfirm is how long after its timeout a command's end is waited
	// for: its grace, as long again for survivors to be reported, and a second
	// for the way. A plugin that is silent then has lost the command.
	timeoutConfirm = 2*workspace.StopGrace + time.Second
	// lastWords is how long output that came before a command was stopped may
	// take to be handed over. A willing writer needs no time, and the death of a
	// plugin is to be told within a second (contract B2).
	lastWords = 500 * time.Millisecond
)

// errLeft is the end of following a command that does not end with its host.
var errLeft = fmt.Errorf("%w; the command goes on, and can be attached", errClosed)

// conclude waits for the first thing that ends the run, and tells its result.
func (r *run) conclude(delivered <-chan struct{}) (*workspace.Result, error) {
	var timeout, confirm <-chan time.Time
	if !r.deadline.IsZero() {
		left := time.Until(r.deadline)
		t, c := time.NewTimer(left), time.NewTimer(left+timeoutConfirm)
		defer t.Stop()
		defer c.Stop()
		timeout, confirm = t.C, c.C
	}
	if over, err := r.awaitCommand(confirm); !over {
		return nil, err
	}
	if r.failure != nil || r.outcome.GetError() != nil {
		wait := time.NewTimer(lastWords)
		defer wait.Stop()
		select {
		case <-delivered:
		case <-wait.C:
		case <-r.ctx.Done():
		}
		return nil, r.unsuccessful()
	}
	// The command is over, but what it wrote is not yet handed over.
	for closing := r.h.p.host.closing; ; {
		select {
		case <-delivered:
			select {
			case <-r.broken: // a writer that failed on the last bytes
				return nil, r.op.wrap(r.breakage)
			default:
			}
			return r.exited()
		case <-r.broken:
			return nil, r.op.wrap(r.breakage)
		case <-r.ctx.Done():
			return nil, r.op.wrap(r.ctx.Err())
		case <-timeout:
			return nil, r.op.wrap(r.timedOut(""))
		case <-closing:
			r.lastInstance().Release() // the plugin need not wait for a slow writer
			closing = nil
		case <-r.h.p.host.ctx.Done():
			return nil, r.op.wrap(errClosed)
		}
	}
}

// awaitCommand waits until the plugin has ended the run, or this side has with
// an error.
func (r *run) awaitCommand(confirm <-chan time.Time) (over bool, _ error) {
	started, closing := r.started, (<-chan struct{})(nil)
	for {
		select {
		case <-started:
			started = nil
			if r.goesOn() { // a host that closes waits for others
				closing = r.h.p.host.closing
			}
		case <-r.ended:
			return true, nil
		case <-closing:
			return false, r.op.wrap(errLeft)
		case <-r.ctx.Done():
			return false, r.stop(r.ctx.Err(), stopConfirm)
		case <-r.broken:
			return false, r.stop(r.breakage, timeoutConfirm)
		case <-confirm:
			r.requestStop() // what is left of it
			return false, r.op.wrap(r.timedOut(fmt.Sprintf("the plugin did not confirm within %v that the command was stopped", timeoutConfirm)))
		}
	}
}

func stopRequest() *berthv1.RunRequest {
	return &berthv1.RunRequest{Message: &berthv1.RunRequest_Stop{Stop: &berthv1.RunStop{}}}
}

// requestStop has the plugin stop the command, now or when it can be reached.
func (r *run) requestStop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true // for the streams to come
	r.queue = append(r.queue, stopRequest())
	r.changed.Broadcast()
}

// stop has the plugin stop the command and waits a little for its word. One that
// is only followed is left alone.
func (r *run) stop(why error, confirm time.Duration) error {
	if r.follow != nil {
		return r.op.wrap(why)
	}
	r.requestStop()
	wait := time.NewTimer(confirm)
	defer wait.Stop()
	select {
	case <-r.ended:
	case <-wait.C:
		return r.op.wrap(r.withPartial(fmt.Errorf("%w (the plugin did not confirm within %v that the command was stopped)", why, confirm)))
	}
	return r.op.wrap(r.withPartial(r.withWord(why)))
}

// withWord adds what the plugin told of a stop that the host asked for: what
// could not be stopped, above all (contract C5).
func (r *run) withWord(why error) error {
	if r.outcome.GetError() == nil {
		return why
	}
	word := r.h.p.remote(r.outcome.GetError())
	var limit, told *workspace.OutputLimitError
	if errors.As(why, &limit) && errors.As(word, &told) { // the plugin had found it too
		limit.Survivors = told.Survivors
		return why
	}
	return fmt.Errorf("%w (%s)", why, word.Error())
}

// unsuccessful is the error of a run that the plugin, or its death, ended.
func (r *run) unsuccessful() error {
	if r.failure != nil {
		return r.failure // wrapped where it was found
	}
	r.told = true
	err := r.h.p.remote(r.outcome.GetError())
	var pathErr *fs.PathError
	if r.cmd.Dir != "" && errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: r.cmd.Dir, Err: pathErr.Err}
	}
	if errors.Is(err, context.Canceled) && r.ctx.Err() != nil {
		err = r.ctx.Err()
	}
	return r.op.wrap(r.withPartial(err))
}

func (r *run) timedOut(survivors string) error {
	return r.withPartial(&workspace.TimeoutError{Timeout: r.cmd.Timeout, Survivors: survivors})
}

// withPartial fills in the beginnings of both streams, which travelled as
// output and not with the error.
func (r *run) withPartial(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var timeout *workspace.TimeoutError
	if errors.As(err, &timeout) {
		timeout.Stdout, timeout.Stderr = r.out[0].beginning(), r.out[1].beginning()
	}
	var limit *workspace.OutputLimitError
	if errors.As(err, &limit) {
		limit.Stdout, limit.Stderr = r.out[0].beginning(), r.out[1].beginning()
	}
	return err
}

// exited is the result of a command that ended by itself.
func (r *run) exited() (*workspace.Result, error) {
	r.told = true
	r.mu.Lock()
	defer r.mu.Unlock()
	return &workspace.Result{
		RunID: r.id, ExitCode: int(r.outcome.GetExited().GetCode()),
		Stdout: r.out[0].collected, Stderr: r.out[1].collected,
	}, nil
}
