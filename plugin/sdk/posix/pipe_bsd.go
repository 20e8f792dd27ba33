//go:build unix && !linux

package posix

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func pipeCloexec(fds []int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(fds); err != nil {
		return err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return nil
}

// pipeCapacity is the most that a pipe holds on these systems.
const pipeCapacity = 64 << 10

// pipeHolds is what a pipe may hold at most: reading ends earlier, when it is
// empty.
func pipeHolds(int) (int, error) { return pipeCapacity, nil }
