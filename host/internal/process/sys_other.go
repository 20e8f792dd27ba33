//go:build !linux

package process

// reap waits for the process's end and kills what is left of its group.
func (p *Process) reap() {
	state, _ := p.proc.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.pid)
	p.reapedAs(state)
}
