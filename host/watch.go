package host

import (
	"context"
	"time"
)

// watch ends a stream on which the plugin makes no progress. Only the time
// between begin and pause counts: our own caller may take as long as it likes.
type watch struct {
	idle   time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	stop   func() bool
}

// watched returns a context for a stream and its watch, which is paused. The
// stream ends when ctx does; the plugin is told of no deadline.
func watched(ctx context.Context, idle time.Duration) (context.Context, *watch) {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &watch{idle: idle, cancel: cancel}
	w.timer = time.AfterFunc(idle, func() { cancel(errIdle) })
	w.timer.Stop()
	w.stop = context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	return callCtx, w
}

func (w *watch) begin() { w.timer.Reset(w.idle) }
func (w *watch) pause() { w.timer.Stop() }

// end ends the stream too.
func (w *watch) end() {
	w.timer.Stop()
	w.stop()
	w.cancel(nil)
}
