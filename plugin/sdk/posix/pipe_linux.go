package posix

import "golang.org/x/sys/unix"

func pipeCloexec(fds []int) error { return unix.Pipe2(fds, unix.O_CLOEXEC) }

// pipeHolds tells how many bytes are in a pipe (FIONREAD under its other name).
func pipeHolds(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }
