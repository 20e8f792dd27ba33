package workspace

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrInvalid is a request that is wrong in itself. Nothing was started.
	ErrInvalid = errors.New("invalid request")
	// ErrUnavailable is a workspace that is gone, finished or replaced. No
	// retry can mend it (contract L3, L8).
	ErrUnavailable = errors.New("workspace unavailable")
	// ErrTransient is a passing fault of a provider's service, such as a 429,
	// a 5xx, or no answer: a later try may succeed. A [*PluginError] never
	// matches it, since there the outcome of the call is unknown.
	ErrTransient = errors.New("temporary fault")
	// ErrReadOnly is a change asked of a read-only handle.
	ErrReadOnly = errors.New("workspace is read-only")
)

// TimeoutError is a command that was stopped, with its whole process tree,
// when its timeout passed (contract C5). A context that ends is not one.
type TimeoutError struct {
	// Timeout is what passed: the command's own or, with Ceiling, the
	// provider's.
	Timeout time.Duration
	// Ceiling says that it was the provider's own limit, which came first.
	Ceiling bool
	// Stdout and Stderr are the first [PartialOutput] bytes of each stream.
	Stdout, Stderr []byte
	// Survivors tells what could not be stopped and why, if anything.
	Survivors string
}

func (e *TimeoutError) Error() string {
	whose := "its timeout"
	if e.Ceiling {
		whose = "the provider's own limit"
	}
	return fmt.Sprintf("command stopped: %s of %v passed%s", whose, e.Timeout, survivors(e.Survivors))
}

// OutputLimitError is a command that was stopped because it wrote more than
// its limit (contract C7).
type OutputLimitError struct {
	// Limit is in bytes, for both streams together.
	Limit int64
	// Stdout and Stderr are the first [PartialOutput] bytes of each stream.
	Stdout, Stderr []byte
	// Survivors tells what could not be stopped and why, if anything.
	Survivors string
}

func (e *OutputLimitError) Error() string {
	return fmt.Sprintf("command stopped: more than %d bytes of output%s", e.Limit, survivors(e.Survivors))
}

func survivors(s string) string {
	if s == "" {
		return ""
	}
	return "; not stopped: " + s
}

// PluginError is a failure of the plugin process itself: it could not be
// started, died, was killed, or answered nonsense (contract B1, B2). It never
// matches [ErrTransient]: what the call did is known only by MayHaveExecuted.
type PluginError struct {
	// Provider is the configured provider's name.
	Provider string
	// Op is what was being done, such as "start", "run" or "stat".
	Op string
	// Workspace is the ref of the workspace that it was done to, or words for one
	// that has none yet; empty if the call was not about one.
	Workspace string
	// RunID is the host's name of the run, if the call was one.
	RunID string
	// PID is the plugin's process, zero if none was started.
	PID int
	// ExitStatus tells how the process ended, such as "exit status 7" or
	// "signal: killed"; empty while it lives.
	ExitStatus string
	// Stderr holds the last lines that the plugin wrote there.
	Stderr []string
	// MayHaveExecuted says that the call may have been carried out, in whole
	// or in part. False: it was not, and can be made again safely.
	MayHaveExecuted bool
	// Reason says what happened and, where we know, what to do about it.
	Reason string
}

func (e *PluginError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %s: %s", e.Provider, e.Op)
	if e.RunID != "" {
		fmt.Fprintf(&b, " %s", e.RunID)
	}
	if e.Workspace != "" {
		fmt.Fprintf(&b, " in %s", e.Workspace)
	}
	fmt.Fprintf(&b, ": %s", e.Reason)
	var facts []string
	if e.PID != 0 {
		facts = append(facts, fmt.Sprintf("plugin pid %d", e.PID))
	}
	if e.ExitStatus != "" {
		facts = append(facts, e.ExitStatus)
	}
	if e.MayHaveExecuted {
		facts = append(facts, "the call may have been carried out")
	} else {
		facts = append(facts, "the call was not carried out")
	}
	fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
	if len(e.Stderr) > 0 {
		fmt.Fprintf(&b, "; its last lines: %s", strings.Join(e.Stderr, " | "))
	}
	return b.String()
}

// Temporary reports that another call may succeed: the plugin is started
// again (contract B3).
func (e *PluginError) Temporary() bool { return true }
