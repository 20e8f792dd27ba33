package workspace

import (
	"context"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"
	"time"
)

// Runs finds commands again that were started before, by whichever host: those
// that were started detached above all (contract B3). Workspaces without
// [FeatureAttachRun] say [errors.ErrUnsupported].
type Runs interface {
	// ListRuns tells the runs of this workspace whose outcome nobody has taken
	// yet, in no particular order: those that are going, and those that have
	// ended within the last minutes. It ends at the first error.
	ListRuns(ctx context.Context) iter.Seq2[RunInfo, error]
	// AttachRun follows a run: its output from the offsets of opts on, and its
	// outcome, which it takes. Which runs there are tells ListRuns; one that is
	// not known (any more) is [fs.ErrNotExist].
	//
	// The context is for the following alone. When it ends, Wait returns its
	// error and the command is not stopped: a detached one goes on, to be
	// attached again; one that is not detached is stopped after 10 s in which
	// nobody follows it. To end a command, use StopRun.
	//
	// One at a time follows a run: whoever did before, also the program that
	// started it, gets an error from Wait, and the command goes on.
	//
	// The command keeps the timeout and the output limit that it was started
	// with.
	AttachRun(ctx context.Context, id string, opts AttachOptions) (Process, error)
	// StopRun stops a run's whole process tree: TERM, then KILL at most 2 s later
	// (contract C5). One that has ended already is success, one that is not
	// known [fs.ErrNotExist].
	StopRun(ctx context.Context, id string) error
}

// RunInfo is one run in a listing.
type RunInfo struct {
	// ID is what [Process.ID] told, for AttachRun and StopRun.
	ID string
	// Detached says that it goes on when nobody follows it.
	Detached bool
	// Ended says that its outcome waits to be taken by AttachRun.
	Ended bool
	// Started is zero where it is not known.
	Started time.Time
	// Args or Script is the command.
	Args   []string
	Script string
}

// AttachOptions say what is delivered of a run. The zero value is all that is
// still held of its output, collected in the [Result].
type AttachOptions struct {
	// Stdout and Stderr receive output as it arrives. A nil one is collected in
	// the [Result], which holds [DefaultOutputLimit] at most: what would be more
	// ends the following, not the command. A writer that fails ends the
	// following too.
	Stdout, Stderr io.Writer
	// StdoutOffset and StderrOffset are how many bytes of each stream are passed
	// over, because the caller has them. What was delivered once is dropped
	// sooner or later, and so are the oldest bytes of a detached run that
	// nobody follows.
	StdoutOffset, StderrOffset int64
	// OnGap is called before any output is delivered if what was asked for is not
	// held any more. If it returns nil, delivery begins with what is held; its
	// error ends the following. A nil OnGap returns the gap itself.
	OnGap func(gap *OutputGapError) error
}

// Validate checks the offsets. The error wraps [ErrInvalid].
func (o AttachOptions) Validate() error {
	if o.StdoutOffset < 0 || o.StderrOffset < 0 {
		return fmt.Errorf("attach run: a negative offset (%d, %d): %w", o.StdoutOffset, o.StderrOffset, ErrInvalid)
	}
	return nil
}

// ValidateRunID checks the form of a run's id. The error wraps [ErrInvalid].
func ValidateRunID(id string) error {
	if runIDPattern.MatchString(id) {
		return nil
	}
	return fmt.Errorf("run %s: want 1 to 63 of a-z, 0-9 and -, as Process.ID tells: %w", quote(id), ErrInvalid)
}

var runIDPattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// OutputGapError is output of a run that is not held any more: that of a
// detached command which nobody followed. The run itself is as it was, and can
// be attached from the offsets told here.
type OutputGapError struct {
	// RunID is the run's.
	RunID string
	// Stdout and Stderr are how many bytes are missing.
	Stdout, Stderr int64
	// StdoutOffset and StderrOffset are where what is held begins.
	StdoutOffset, StderrOffset int64
}

func (e *OutputGapError) Error() string {
	var missing []string
	if e.Stdout > 0 {
		missing = append(missing, fmt.Sprintf("%d bytes of stdout before offset %d", e.Stdout, e.StdoutOffset))
	}
	if e.Stderr > 0 {
		missing = append(missing, fmt.Sprintf("%d bytes of stderr before offset %d", e.Stderr, e.StderrOffset))
	}
	return fmt.Sprintf("run %s: %s are not kept any more", e.RunID, strings.Join(missing, " and "))
}

// Progress is what making or attaching a workspace does meanwhile.
type Progress struct {
	// Text is such as "pulling python:3.12-slim". It comes from the provider, and
	// may hold anything.
	Text string
	// Done of Total, zero where not known, in Unit, such as "bytes".
	Done, Total int64
	Unit        string
}
