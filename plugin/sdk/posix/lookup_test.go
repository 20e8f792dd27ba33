//go:build unix

package posix

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestRefusals is of the limits of the system, which a test cannot reach without
// reaching them for all that runs beside it.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		errno syscall.Errno
		kind  error
		says  string
	}{
		{syscall.E2BIG, workspace.ErrInvalid, "larger than the system takes"},
		{syscall.EAGAIN, workspace.ErrTransient, "pids.max"},
		{syscall.ENOMEM, workspace.ErrTransient, "memory"},
		{syscall.EMFILE, workspace.ErrTransient, "open files"},
		{syscall.ENFILE, workspace.ErrTransient, "open files"},
	} {
		failed, err := startFailure("/bin/sh", "", test.errno)
		if failed != nil || !errors.Is(err, test.errno) {
			t.Errorf("%v: %+v, %v; want no exit code", test.errno, failed, err)
		}
		if err := refusal("dir", "start", test.errno); !errors.Is(err, test.kind) || !errors.Is(err, test.errno) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v", test.errno, err)
		}
	}
	var pathErr *fs.PathError
	if err := refusal("dir", "chdir", syscall.ENOENT); !errors.As(err, &pathErr) || pathErr.Path != "dir" {
		t.Errorf("a missing folder: %v", err)
	}
	for _, test := range []struct {
		program string
		errno   syscall.Errno
		code    int
	}{
		{"/bin/sh", syscall.ENOENT, workspace.ExitNotExecutable}, // its interpreter
		{"/gone", syscall.ENOENT, workspace.ExitNotFound},
		{"/bin/sh", syscall.ENOEXEC, workspace.ExitNotExecutable},
		{"/bin/sh", syscall.EACCES, workspace.ExitNotExecutable},
		{"/bin/sh", syscall.ETXTBSY, workspace.ExitNotExecutable},
	} {
		if failed, err := startFailure(test.program, "", test.errno); err != nil || failed == nil || failed.code != test.code {
			t.Errorf("%s, %v: %+v, %v; want %d", test.program, test.errno, failed, err, test.code)
		}
	}
}
