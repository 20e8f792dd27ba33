//go:build !linux

package posix

// Main must be the first line of main, and of TestMain in tests that run
// commands. On Linux this binary is started again to supervise commands, and
// Main is where it learns so; on this system it does nothing.
func Main() {}

// Reserve does nothing on this system: it is for Linux, where a limit of processes
// counts threads.
func Reserve() {}

// MakeThreads does nothing on this system either.
func MakeThreads(int) {}
