package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

// Exit codes of berth. A command's own code is berth's; a signal N to berth is
// 128+N.
const (
	exitUsage   = 2   // the command line is wrong; nothing was done
	exitTimeout = 124 // a command was stopped at its timeout
	exitFailure = 125 // berth itself, or what it asked of a provider, failed
	exitPipe    = 141 // nobody reads the output any more, as if SIGPIPE had ended berth
)

// codeError is the exit code of a command that ended by itself.
type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usageError is a command line that is wrong in itself.
type usageError struct {
	command string // as typed, such as "berth run"
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exit tells what went wrong, and returns the exit code for it.
func (a *app) exit(ctx context.Context, err error) int {
	var code *codeError
	var usage *usageError
	var interrupted *interruption
	var timeout *workspace.TimeoutError
	if err == nil {
		err = a.stdout.failure() // which the help, for one, does not tell
	}
	switch {
	case err == nil:
		return 0
	case a.stdout.unread(), a.stderr.unread() && errors.Is(err, syscall.EPIPE):
		return exitPipe
	case errors.As(err, &code):
		return code.code
	case errors.As(context.Cause(ctx), &interrupted):
		a.say("%s", interruptedMessage(interrupted, err))
		return interrupted.exitCode()
	case errors.As(err, &usage):
		a.say("%v", err)
		a.say("see %s --help", usage.command)
		return exitUsage
	}
	a.say("%v", err)
	if h := hint(err); h != "" {
		a.say("%s", h)
	}
	if errors.As(err, &timeout) {
		return exitTimeout
	}
	return exitFailure
}

// interruptedMessage leaves out what only says that the context ended.
func interruptedMessage(i *interruption, err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) && !strings.Contains(text, "not stopped") {
		return i.Error()
	}
	return i.Error() + ": " + text
}

// hint says what to do about an error, where its own text does not.
func hint(err error) string {
	switch {
	case errors.Is(err, workspace.ErrUnavailable):
		return "if the workspace has only stopped, the next command starts it again; if it is gone, berth open makes another"
	case errors.Is(err, workspace.ErrTransient):
		return "the provider's service has a passing fault: try again"
	case errors.Is(err, syscall.E2BIG):
		return "pass what is large in a file or on stdin: one argument or variable holds 128 KiB at most"
	}
	return ""
}

// in says which workspace an error is from, where it tells only of a file or a
// command.
func in(ref workspace.Ref, err error) error {
	return display.In(ref.String(), err)
}
