package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// interruption is why a context ended: a signal to berth.
type interruption struct{ signal syscall.Signal }

func (i *interruption) Error() string {
	if i.signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("stopped by a signal: %v", i.signal)
}

// exitCode is what shells say of a program that died of the signal.
func (i *interruption) exitCode() int { return 128 + int(i.signal) }

// withSignals returns a context that ends at the first SIGINT, SIGTERM or
// SIGHUP with an [*interruption] as its cause: commands are stopped, with their
// whole trees, and what berth itself holds is cleared. At the second one berth
// exits at once; its plugins notice, and stop what runs. A hangup that the
// caller told us to ignore, as nohup does, stays ignored.
//
// A hangup that keep takes for something else ends nothing.
//
// SIGPIPE is caught, so that writing to a pipe that nobody reads is an error
// that ends things in order. It is not ignored: plugins would inherit that.
func withSignals(parent context.Context, keep func() bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	caught := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		caught = append(caught, syscall.SIGHUP)
	}
	signals, pipes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, caught...)
	signal.Notify(pipes, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP && keep() {
					n--
					continue
				}
				i := &interruption{s.(syscall.Signal)}
				if n > 0 {
					os.Exit(i.exitCode())
				}
				cancel(i)
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
