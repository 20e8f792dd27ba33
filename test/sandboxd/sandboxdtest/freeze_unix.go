//go:build unix

package sandboxdtest

import (
	"sync"
	"syscall"
	"testing"
)

// Freeze has it answer nothing, and break no connection, until the returned function is
// called.
func (s *Service) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	s.mu.Lock()
	process := s.cmd.Process
	s.mu.Unlock()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() { _ = process.Signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}
