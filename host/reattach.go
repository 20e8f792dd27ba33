package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// reattachWindow is how long after its stream broke a run is looked for: as
	// long as it is kept without one (contract B3).
	reattachWindow = 10 * time.Second
	// reattachPause is between two tries, and doubles up to reattachPauseMax: a
	// service that is coming back takes some time, and a caller waits.
	reattachPause    = 20 * time.Millisecond
	reattachPauseMax = 500 * time.Millisecond
	// reattachMost is how often in a row a run is attached that then breaks again
	// within a window: a run that ends every plugin it meets is given up.
	reattachMost = 8
)

// breaks counts the streams of one run that ended one soon after the other.
type breaks struct {
	inARow int
	last   time.Time
}

// another reports whether one more may be made up for.
func (b *breaks) another() bool {
	now := time.Now()
	if now.Sub(b.last) > reattachWindow {
		b.inARow = 0
	}
	b.last = now
	b.inARow++
	return b.inARow <= reattachMost
}

// mayBeFound reports whether a run whose stream ended with err, which means
// cause, may be there all the same: its plugin died, or lost it for the moment.
func (r *run) mayBeFound(l *link, died bool, err, cause error) bool {
	if errors.Is(context.Cause(l.ctx), errDeadline) {
		return false // it had its time
	}
	var plug *workspace.PluginError
	if errors.As(cause, &plug) {
		switch status.Code(err) {
		case codes.Unavailable, codes.Canceled:
			return true // a connection that broke
		}
		return died
	}
	return errors.Is(cause, workspace.ErrTransient)
}

// reattach finds a run again whose stream ended for cause, within a window. The
// error is the run's.
func (r *run) reattach(cause error) (*link, error) {
	deadline := time.Now().Add(reattachWindow)
	for pause := reattachPause; ; pause = min(2*pause, reattachPauseMax) {
		l, again, err := r.tryAttach(deadline, cause)
		switch {
		case err == nil:
			return l, nil
		case !again:
			return nil, r.lost(cause, err)
		case time.Until(deadline) < pause:
			return nil, r.lost(cause, fmt.Errorf("within %v: %w", reattachWindow, err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.callCtx.Done():
			timer.Stop()
			return nil, cause
		}
	}
}

func (r *run) hasStarted() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

// tryAttach makes one try after cause; again says that another may succeed.
func (r *run) tryAttach(deadline time.Time, cause error) (_ *link, again bool, _ error) {
	ctx, cancel := context.WithDeadline(r.callCtx, deadline)
	defer cancel()
	inst, err := r.h.p.acquire(ctx)
	if err != nil {
		var config *ConfigError
		return nil, !errors.As(err, &config) && !errors.Is(err, fs.ErrClosed), err
	}
	l := r.newLink(inst)
	if err = r.attach(l, deadline); err == nil {
		return l, false, nil
	}
	again, err = r.broke(l, err)
	l.cancel(nil)
	if errors.Is(err, fs.ErrNotExist) && r.mayRepeat() {
		l = r.newLink(inst)
		if err = r.repeat(l, cause); err == nil {
			return l, false, nil
		}
		again, err = r.broke(l, err)
		l.cancel(nil)
	}
	inst.Release()
	return nil, again, err
}

// mayRepeat reports whether the start of a run that is not known may be sent again:
// nothing was heard of it, so that it may never have arrived.
func (r *run) mayRepeat() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.follow == nil && !r.hasStarted() && !r.stopping && r.breakage == nil && !r.sent.IsZero()
}

// repeat sends the start of a run again. The plugin makes sure that it does not run
// twice: by the registry of runs, if it is the one that this host was told of before it
// asked for the plugin to which it sent the start first, and else by the time since.
func (r *run) repeat(l *link, cause error) error {
	stream, err := l.inst.Client().Run(l.ctx)
	if err != nil {
		return err
	}
	l.stream, l.repeats = stream, cause
	r.mu.Lock()
	defer r.mu.Unlock()
	start := r.start()
	start.RepeatedAfterNs, start.RunRegistry = max(int64(time.Since(r.sent)), 1), r.registry
	r.requeue(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: start}})
	r.in.sent, r.in.endSent = 0, false
	r.link, r.inst = l, l.inst
	r.changed.Broadcast()
	return nil
}

// requeue makes first be sent on a new stream, if it is not nil, and then what waits
// and was not answered. The caller holds r.mu.
func (r *run) requeue(first *berthv1.RunRequest) {
	queue := r.queue[:0:0]
	if first != nil {
		queue = append(queue, first)
	}
	if r.stopping {
		queue = append(queue, stopRequest())
	}
	for _, msg := range r.queue {
		if msg.GetSignal() != nil {
			queue = append(queue, msg)
		}
	}
	r.queue = queue
}

// firstAttach is that of a run which was not started here.
func (r *run) firstAttach(l *link) error {
	return r.attach(l, time.Now().Add(r.h.p.host.deadlines.Read))
}

// attach opens a stream to a run from the offsets that the host has.
func (r *run) attach(l *link, deadline time.Time) error {
	timer := time.AfterFunc(time.Until(deadline), func() { l.cancel(errDeadline) })
	defer timer.Stop()
	stream, err := l.inst.Client().AttachRun(l.ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	attach := &berthv1.RunAttach{Workspace: r.key, RunId: r.id, StdoutOffset: r.out[0].received, StderrOffset: r.out[1].received}
	r.mu.Unlock()
	// An error of Send is told by Recv.
	_ = stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Attach{Attach: attach}})
	msg, err := stream.Recv()
	if err != nil {
		return err
	}
	attached := msg.GetAttached()
	if attached == nil {
		return garbage("the plugin did not say first that the run is attached")
	}
	l.stream = stream
	return r.resume(l, attached)
}

// resume has the run go on over a stream, from what the plugin has of it.
func (r *run) resume(l *link, attached *berthv1.RunAttached) error {
	if err := r.checkGap(attached); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.out {
		o.told = 0 // what was told on another stream may be lost
	}
	if r.cmd.Stdin != nil {
		if err := r.in.rewind(attached); err != nil {
			return err
		}
	}
	// The start was heard, or the run would not be there.
	r.requeue(nil)
	r.link, r.inst = l, l.inst
	if r.follow != nil {
		r.noteStarted()
	}
	r.changed.Broadcast()
	return nil
}

// checkGap compares what the plugin holds with what is wanted. A caller who
// attached may take what is left.
func (r *run) checkGap(attached *berthv1.RunAttached) error {
	r.mu.Lock()
	missing := func(o *output, oldest int64) int64 { return max(oldest-o.received, 0) }
	gap := &workspace.OutputGapError{
		RunID:  r.id,
		Stdout: missing(r.out[0], attached.GetStdoutOffset()), Stderr: missing(r.out[1], attached.GetStderrOffset()),
		StdoutOffset: attached.GetStdoutOffset(), StderrOffset: attached.GetStderrOffset(),
	}
	r.mu.Unlock()
	if attached.GetStdoutOffset() < 0 || attached.GetStderrOffset() < 0 {
		return garbage("the plugin holds output from the offsets %d and %d on", attached.GetStdoutOffset(), attached.GetStderrOffset())
	}
	if gap.Stdout == 0 && gap.Stderr == 0 {
		return nil
	}
	if r.follow == nil || r.follow.OnGap == nil || r.hasStarted() {
		return &ownError{gap}
	}
	if err := r.follow.OnGap(gap); err != nil {
		return &ownError{err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, oldest := range []int64{gap.StdoutOffset, gap.StderrOffset} {
		if r.out[i].received < oldest {
			r.out[i].startAt(oldest)
		}
	}
	return nil
}

// lost is the error of a run that was not found again after cause, for why.
func (r *run) lost(cause, why error) error {
	var gap *workspace.OutputGapError
	if errors.Is(why, workspace.ErrUnavailable) || errors.As(why, &gap) || r.follow != nil && !r.hasStarted() {
		return why
	}
	var lost workspace.PluginError
	var plug *workspace.PluginError
	if errors.As(cause, &plug) {
		lost = *plug
	} else {
		lost = *r.h.p.fault(r.lastInstance(), r.op, cause.Error())
	}
	lost.MayHaveExecuted = r.op.changes
	lost.Reason += "; the run was not found again: " + why.Error()
	return &lost
}

// stopLost stops a command that could not be told on its stream to stop.
func (r *run) stopLost() {
	ctx, cancel := context.WithTimeout(r.h.p.host.ctx, reattachWindow)
	defer cancel()
	op := r.op
	op.name = "stop run"
	for pause := reattachPause; ; pause = min(2*pause, reattachPauseMax) {
		err := r.h.stopRun(ctx, op, r.key)
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, fs.ErrClosed) || ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
