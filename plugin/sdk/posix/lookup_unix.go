//go:build unix

package posix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/shared/workspace"
)

// defaultPath is where programs are looked for when a command has no PATH, as
// execvp does.
const defaultPath = "/bin:/usr/bin"

// notRun is a program that cannot be run: the exit code and the reason that a
// shell would give (contract C3).
type notRun struct {
	code   int
	reason string
}

func notFound(program, reason string) *notRun {
	return &notRun{workspace.ExitNotFound, fmt.Sprintf("%s: %s", shorten(program), reason)}
}

func notExecutable(program string, err error) *notRun {
	return &notRun{workspace.ExitNotExecutable, fmt.Sprintf("%s: %v", shorten(program), err)}
}

// shorten keeps a reason within what a pipe takes at once.
func shorten(s string) string {
	const most = 1024
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// lookUp finds a program in the PATH of its own environment, seen from dir, "" for
// the current directory (contract C2). A file that is there but cannot be executed is passed
// over, as in execvp, and is what is reported if there is no better one.
func lookUp(program, dir string, env []string) (string, *notRun) {
	if strings.Contains(program, "/") {
		switch err := executable(dir, program); {
		case err == nil:
			return program, nil
		case missing(err):
			return "", notFound(program, err.Error())
		default:
			return "", notExecutable(program, err)
		}
	}
	path := defaultPath
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	var denied *notRun
	for _, folder := range strings.Split(path, ":") {
		if folder == "" {
			folder = "."
		}
		file := folder + "/" + program
		err := executable(dir, file)
		if err == nil {
			return file, nil
		}
		if denied == nil && !missing(err) {
			denied = notExecutable(file, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", notFound(program, "not found in PATH "+shorten(path))
}

// executable reports why a file cannot be executed, in the words of execve.
func executable(dir, file string) error {
	if dir != "" && !filepath.IsAbs(file) {
		file = dir + "/" + file
	}
	info, err := os.Stat(file)
	if err != nil {
		return cause(err)
	}
	if !info.Mode().IsRegular() {
		return syscall.EACCES
	}
	return unix.Access(file, unix.X_OK)
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotDir(err) || errors.Is(err, syscall.ENAMETOOLONG)
}

// startFailure says what an error of execve or fork means: a limit of the
// system (the error), or of the program (the reason).
func startFailure(program, dir string, err error) (*notRun, error) {
	switch {
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM),
		errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil, err
	case missing(err) && missing(executable(dir, program)): // went away since it was found
		return notFound(program, err.Error()), nil
	case errors.Is(err, fs.ErrNotExist):
		return notExecutable(program, fmt.Errorf("its interpreter is missing: %w", err)), nil
	}
	return notExecutable(program, err), nil
}

// processLimits are those that make a fork fail.
const processLimits = "pids.max of the control group, RLIMIT_NPROC or kernel.pid_max"

// refusal is the error for a command of which nothing was started.
func refusal(dir, what string, errno syscall.Errno) error {
	switch errno {
	case syscall.E2BIG:
		return fmt.Errorf("starting the command: arguments and environment are larger than the system takes: %w: %w", errno, workspace.ErrInvalid)
	case syscall.EAGAIN:
		return fmt.Errorf("starting the command: the limit of processes is reached (%s): %w: %w", processLimits, errno, workspace.ErrTransient)
	case syscall.ENOMEM:
		return fmt.Errorf("starting the command: the limit of memory is reached: %w: %w", errno, workspace.ErrTransient)
	case syscall.EMFILE, syscall.ENFILE:
		return fmt.Errorf("starting the command: the limit of open files is reached: %w: %w", errno, workspace.ErrTransient)
	}
	return &fs.PathError{Op: what, Path: dir, Err: errno}
}

// exitCode is a shell's (contract C3).
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
