package host

import (
	"context"
	"errors"
	"time"
)

const (
	// moveWindow is how long a run may take to be attached through the plugin that
	// takes another one's place: half of what it is kept without a stream, so that
	// there is time to go back.
	moveWindow = reattachWindow / 2
	// moveAgain is after what time a run that had to go back tries once more: often
	// enough to be done before the old plugin's time is over, seldom enough for one
	// that never can.
	moveAgain = 5 * time.Second
)

// errMoving ends a stream that is left for another plugin.
var errMoving = errors.New("the run moves to the plugin that takes this one's place")

// leftOnPurpose says that err is the end of a stream that this side has left for
// another plugin.
func leftOnPurpose(l *link, err error) bool {
	var protocol *protocolError
	var own *ownError
	return errors.Is(context.Cause(l.ctx), errMoving) && !errors.As(err, &protocol) && !errors.As(err, &own)
}

// leaveInTime leaves the stream of a run that can be attached again when another
// plugin takes the place of the one that it leads to, and nothing is under way that
// could be lost by that.
func (r *run) leaveInTime(l *link) {
	select {
	case <-l.inst.Leaving():
	case <-l.ctx.Done():
		return
	}
	stay := time.NewTimer(time.Until(l.stay))
	defer stay.Stop()
	select {
	case <-stay.C:
	case <-l.ctx.Done():
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.moving = true
	for r.link == l && !r.mayMove() {
		r.changed.Wait()
	}
	if r.link == l {
		l.cancel(errMoving)
	}
}

// mayMove says that leaving the stream loses nothing: the command is known to have
// been started, no signal waits for its answer, and the plugin is not being told
// that the outcome was taken. The caller holds r.mu.
func (r *run) mayMove() bool {
	if !r.hasStarted() || r.taken {
		return false
	}
	for _, s := range r.signals {
		if s.sent {
			return false
		}
	}
	return true
}

// move attaches a run, whose stream was left, through the plugin that took the
// place of its own. If that one has it not, or dies of it, the run goes back, as
// long as its own is there; only then it is looked for as if that had died.
func (r *run) move(l *link) (*link, error) {
	cause := r.h.p.fault(l.inst, r.op, "another plugin took the place of this one")
	next, again, err := r.tryAttach(time.Now().Add(moveWindow), cause)
	if err == nil {
		l.inst.Release()
		return next, nil
	}
	back := r.newLink(l.inst)
	back.stay = time.Now().Add(moveAgain)
	if r.callCtx.Err() == nil && r.attach(back, time.Now().Add(moveWindow)) == nil {
		return back, nil
	}
	back.cancel(nil)
	l.inst.Release()
	if !again {
		return nil, r.lost(cause, err)
	}
	return r.reattach(cause)
}
