package process

import (
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host/internal/budget"
)

// startIn starts the process in its room, before its first instruction if the
// kernel can do that.
func startIn(room *budget.Room, path string, attr *os.ProcAttr) (*os.Process, error) {
	plain := *attr.Sys
	done, prepared := room.Prepare(attr.Sys)
	defer done()
	proc, err := os.StartProcess(path, []string{path}, attr)
	if err != nil && prepared {
		// It may be the group that was refused, by an older kernel or a filter of
		// system calls; Enter does it then.
		attr.Sys = &plain
		proc, err = os.StartProcess(path, []string{path}, attr)
	}
	return proc, err
}

// enter puts the started process into its room.
func (p *Process) enter(room *budget.Room) {
	if err := room.Enter(p.PID()); err != nil {
		p.pump.put(record{level: hclog.Warn, message: "plugin is not bounded as configured", args: []any{"error", err}})
	}
}

// leave is called when the process has ended and its pid is free: it finds out
// whether it was the kernel that ended it, for want of memory.
func (p *Process) leave(room *budget.Room) {
	kills := room.OOMKills()
	p.mu.Lock()
	defer p.mu.Unlock()
	if kills == 0 || p.reason != "" || p.state == nil || !wasKilled(p.state) {
		return
	}
	limits := room.Limits()
	p.oom = fmt.Sprintf("it wanted more memory than its budget of %s", budget.Size(limits.Memory))
}

// vacate ends what the process has left in its room.
func (p *Process) vacate(room *budget.Room) {
	if err := room.Close(); err != nil {
		p.pump.put(record{level: hclog.Warn, message: "what the plugin left was not cleared away", args: []any{"error", err}})
	}
}

// OutOfMemory tells why the kernel killed the process, if it did so for want of
// memory; it is empty otherwise.
func (p *Process) OutOfMemory() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oom
}

// Bounds tells what bounds the process, and how; it is empty if nothing does.
func (p *Process) Bounds() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bounds
}
