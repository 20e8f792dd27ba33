package execpath

import (
	"context"
	"fmt"
	"time"
)

// A command may stop (SIGSTOP) whatever is of its user: our shells in the container
// too. None of them ever means to stand still, so that one which is long in answering
// is told to go on, which is nothing to one that just works.

const (
	// firstWake is later than nearly all answers.
	firstWake = 2 * time.Second
	// longestWake lies between two of what goes on for long.
	longestWake = 10 * time.Second
)

// wake calls rouse from time to time until ctx or the workspace ends, or rest is
// called, which waits for it.
func (w *Workspace) wake(ctx context.Context, rouse func(context.Context)) (rest func()) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(w.alive, cancel) //nolint:contextcheck // either of them ends it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause := firstWake; sleep(ctx, pause) == nil; pause = min(2*pause, longestWake) {
			rouse(ctx)
		}
	}()
	return func() {
		detach()
		cancel()
		<-done
	}
}

// rouse lets a kept shell go on, with what it runs, by another one: also the keeper,
// which does it for all others.
func (s *shell) rouse(ctx context.Context) {
	if s.pid <= 1 {
		return // what it tells is not trusted
	}
	x, err := s.ws.exec(ctx, []string{"/bin/sh", "-c", fmt.Sprintf("kill -CONT -%d", s.pid)}, s.name)
	if err != nil {
		return // whoever waits for the shell hears what is wrong
	}
	_, _ = x.Wait(ctx)
	_ = x.Close()
}

// rouse lets a command's own shell go on: it tells how the command ends.
func (p *process) rouse(ctx context.Context) {
	p.mu.Lock()
	pid := p.shellPID
	p.mu.Unlock()
	if pid > 1 {
		_, _, _ = p.ws.keeper.ask(ctx, fmt.Sprintf("kill -CONT %d 2>/dev/null", pid))
	}
}
