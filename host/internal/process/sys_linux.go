package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives the plugin a process group of its own, which Ctrl-C does not
// reach and which can be killed whole, and the kernel's promise to kill it when
// this process is gone.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the process's end, kills what is left of its group, and only
// then lets the kernel give its pid, and so the group's id, to others.
func (p *Process) reap() {
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.pid)
	state, _ := p.proc.Wait() // it has ended, so this does not block
	p.reapedAs(state)
}
