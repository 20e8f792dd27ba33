package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// freezeSelf stops this process until it gets SIGCONT.
func freezeSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// ignoreParentDeath takes back the parent death signal that the host asked for.
func ignoreParentDeath() {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		panic(err)
	}
}

func detached(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}
