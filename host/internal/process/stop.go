package process

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Kill ends the process and its group at once. The first reason given is told
// by [Process.Reason]. It does not wait.
func (p *Process) Kill(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.reason == "" {
		p.reason = reason
	}
	if p.proc == nil {
		return // if it is just being started, its owner sees the reason
	}
	killGroup(p.pid)
	_ = p.proc.Kill() // it may have left its group
}

// Stop asks the plugin to end, kills it and its group when ctx ends or the time
// for that has passed, and closes it. An error tells that it could not be ended.
func (p *Process) Stop(ctx context.Context) error {
	go p.clientKill()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.exited:
	case <-ctx.Done():
	case <-grace.C:
	}
	return p.Close()
}

// Close kills the process if it runs, waits for its end, and releases all that
// belongs to it. An error tells that it could not be ended. It may be called
// more than once.
func (p *Process) Close() error {
	p.Kill("it was stopped")
	stuck := time.NewTimer(killWait)
	defer stuck.Stop()
	select {
	case <-p.finished:
	case <-stuck.C:
		return fmt.Errorf("plugin %s, pid %d: still there %v after SIGKILL", p.path, p.PID(), killWait)
	}
	go p.clientKill()
	select {
	case <-p.killed:
	case <-stuck.C: // not seen: with the process gone nothing is left to wait for
	}
	p.conns.close()
	p.pump.close()
	p.chores.Wait()
	return nil
}

// clientKill lets go-plugin ask the plugin to end and release what it holds. It
// can block for as long as the process lives, never longer.
func (p *Process) clientKill() {
	p.killOnce.Do(func() {
		defer close(p.killed)
		p.client.Kill()
	})
}

// finish runs when the process is dead and reaped.
func (p *Process) finish() {
	_ = p.handoff.Close() // lets go-plugin's own readers end
	p.readers.Wait()
	p.folder.remove()
	close(p.finished)
}

// reapedAs keeps how the process ended. It is called with p.mu held. One that
// ended by itself just before it was killed was not killed.
func (p *Process) reapedAs(state *os.ProcessState) {
	p.state, p.reaped = state, true
	if state == nil || !wasKilled(state) {
		p.reason = ""
	}
}
