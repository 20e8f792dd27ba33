//go:build unix && !linux

package process

import "syscall"

// sysProcAttr gives the plugin a process group of its own. There is no parent
// death signal here: the lifeline alone ends plugins with their host.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
