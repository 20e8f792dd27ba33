package workspace

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	// DefaultOutputLimit is the most that a command may write to stdout and
	// stderr together when [Command.OutputLimit] is zero (contract C7).
	DefaultOutputLimit = 10 << 20
	// NoOutputLimit lifts the limit of a command whose Stdout and Stderr are
	// both streamed.
	NoOutputLimit = -1
	// PartialOutput is how much of the beginning of each stream an error keeps
	// when a command was stopped (contract C5, C7).
	PartialOutput = 64 << 10
	// StopGrace is the time between TERM and KILL when a command is stopped
	// (contract C5).
	StopGrace = 2 * time.Second
)

// Exit codes that are ours to give, as shells do (contract C3). A program
// killed by signal N exits with 128+N.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// What execve takes on Linux, wherever a workspace runs, so that every provider
// refuses alike what some could not run (contract C1).
const (
	// maxExecString is the longest argument or NAME=VALUE, its NUL included.
	maxExecString = 128 << 10
	// maxExecTotal is the most for all of them, each with its NUL and a pointer.
	// A system with a small stack limit takes less, and says so itself.
	maxExecTotal = 6 << 20
)

// Command is something to run in a workspace: either Args or Script.
type Command struct {
	// Args is an argv, passed literally. A program without a slash is looked
	// up in the PATH that the command itself gets.
	Args []string
	// Script is run under /bin/sh -c.
	Script string
	// Dir is where it starts; relative to the working directory, which an
	// empty one means.
	Dir string
	// Env is added to the workspace's environment and to the provider's
	// configured one (contract C9). Values never appear in logs.
	Env map[string]string
	// Stdin is what the command reads. Nil is the end of file at once. It is
	// read until its end or the command's; one that blocks for ever delays
	// nothing but itself.
	Stdin io.Reader
	// Stdout and Stderr receive output as it arrives. A nil one is collected
	// in the [Result]. A writer that blocks delays no other call and not this
	// command's timeout; one that fails stops the command.
	Stdout, Stderr io.Writer
	// Timeout stops the command's whole process tree, counted from when the
	// ready workspace is asked to run it. Zero means none (contract C5).
	Timeout time.Duration
	// OutputLimit is in bytes, for both streams together. Zero means
	// [DefaultOutputLimit]; [NoOutputLimit] is for streamed commands.
	OutputLimit int64
	// Detached lets the command go on when its host or plugin is gone, to be
	// found again with [Runs]. A host that closes does not wait for it. Its
	// context, its timeout and its limit stop it like any other, and so does a
	// writer that fails, for as long as its host is there. Output that was
	// delivered here is not delivered again. Providers without
	// [FeatureAttachRun] say [errors.ErrUnsupported].
	Detached bool
}

// Validate checks what no provider could run (contract C1, C5). The error
// wraps [ErrInvalid], and [syscall.E2BIG] for a command that is too long; it
// never repeats a value from Env.
func (c Command) Validate() error {
	switch {
	case len(c.Args) == 0 && c.Script == "":
		return fmt.Errorf("command: neither Args nor Script: %w", ErrInvalid)
	case len(c.Args) > 0 && c.Script != "":
		return fmt.Errorf("command: both Args and Script: %w", ErrInvalid)
	case c.Timeout < 0:
		return fmt.Errorf("command: timeout %v is negative (0 means none): %w", c.Timeout, ErrInvalid)
	case c.OutputLimit < NoOutputLimit:
		return fmt.Errorf("command: output limit %d is negative: %w", c.OutputLimit, ErrInvalid)
	case c.OutputLimit == NoOutputLimit && (c.Stdout == nil || c.Stderr == nil):
		return fmt.Errorf("command: no output limit is for commands whose Stdout and Stderr are both streamed: %w", ErrInvalid)
	}
	if len(c.Args) > 0 && c.Args[0] == "" {
		return fmt.Errorf("command: the program's name is empty: %w", ErrInvalid)
	}
	for i, arg := range c.Args {
		if strings.IndexByte(arg, 0) >= 0 {
			return fmt.Errorf("command: argument %d holds a NUL byte: %w", i, ErrInvalid)
		}
	}
	if strings.IndexByte(c.Script, 0) >= 0 {
		return fmt.Errorf("command: the script holds a NUL byte: %w", ErrInvalid)
	}
	if strings.IndexByte(c.Dir, 0) >= 0 {
		return fmt.Errorf("command: Dir %s holds a NUL byte: %w", quote(c.Dir), ErrInvalid)
	}
	if err := ValidateEnv(c.Env); err != nil {
		return err
	}
	return c.validateSize()
}

func (c Command) validateSize() error {
	const perString = 1 + 8 // its NUL and its pointer
	total := 0
	check := func(n int, what func() string) error {
		total += n + perString
		if n >= maxExecString {
			return fmt.Errorf("command: %s has %d bytes, at most %d are possible: %w (%w)", what(), n, maxExecString-1, ErrInvalid, syscall.E2BIG)
		}
		return nil
	}
	for i, arg := range c.Args {
		if err := check(len(arg), func() string { return fmt.Sprintf("argument %d", i) }); err != nil {
			return err
		}
	}
	if err := check(len(c.Script), func() string { return "the script" }); err != nil {
		return err
	}
	for name, value := range c.Env {
		if err := check(len(name)+1+len(value), func() string { return "the variable " + quote(name) }); err != nil {
			return err
		}
	}
	if total > maxExecTotal {
		return fmt.Errorf("command: its arguments and environment have %d bytes together, at most %d are possible: %w (%w)", total, maxExecTotal, ErrInvalid, syscall.E2BIG)
	}
	return nil
}

// ValidateEnv checks the names and values of environment variables (contract
// C1). The error wraps [ErrInvalid] and never repeats a value.
func ValidateEnv(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "":
			return fmt.Errorf("environment: a variable without a name: %w", ErrInvalid)
		case strings.ContainsAny(name, "=\x00"):
			// Whoever writes NAME=VALUE here has written a value (contract B7).
			begins := name[:strings.IndexAny(name, "=\x00")]
			return fmt.Errorf("environment: the name that begins with %s holds = or a NUL byte: %w", quote(begins), ErrInvalid)
		case strings.IndexByte(env[name], 0) >= 0:
			return fmt.Errorf("environment: the value of %s holds a NUL byte: %w", quote(name), ErrInvalid)
		}
	}
	return nil
}

// Result is what a command that ended by itself leaves. A non-zero exit code
// is a result, not an error (contract C3).
type Result struct {
	// RunID is the host's name of this run, as logs and errors tell it.
	RunID    string
	ExitCode int
	// Stdout and Stderr are exact bytes (contract C4), nil where they were
	// streamed to the command's own writers.
	Stdout, Stderr []byte
}

// StdoutText is Stdout with each undecodable byte replaced by U+FFFD. Of a nil
// result it is empty.
func (r *Result) StdoutText() string {
	if r == nil {
		return ""
	}
	return text(r.Stdout)
}

// StderrText is Stderr with each undecodable byte replaced by U+FFFD. Of a nil
// result it is empty.
func (r *Result) StderrText() string {
	if r == nil {
		return ""
	}
	return text(r.Stderr)
}

// text replaces byte by byte: strings.ToValidUTF8 would fold a run of bad
// bytes into one character, and so drop something.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// Signal is the name of a POSIX signal without SIG, such as TERM.
type Signal string

// Signals that every provider with commands delivers; others by their name.
const (
	SignalHangup    Signal = "HUP"
	SignalInterrupt Signal = "INT"
	SignalQuit      Signal = "QUIT"
	SignalKill      Signal = "KILL"
	SignalTerminate Signal = "TERM"
	SignalUser1     Signal = "USR1"
	SignalUser2     Signal = "USR2"
)

// Validate checks the form of a signal's name, such as TERM or RTMIN+1. The
// error wraps [ErrInvalid].
func (s Signal) Validate() error {
	if signalPattern.MatchString(string(s)) && !strings.HasPrefix(string(s), "SIG") {
		return nil
	}
	return fmt.Errorf("signal %s: want a POSIX name without SIG, such as TERM: %w", quote(string(s)), ErrInvalid)
}

var signalPattern = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,14}([+-][0-9]{1,2})?$`)

// Process is a command that was started, as in os/exec.
type Process interface {
	// ID is the host's name of this run.
	ID() string
	// Signal sends to the command's direct process. One that has ended is
	// [os.ErrProcessDone].
	Signal(ctx context.Context, sig Signal) error
	// Wait returns when the command is done (contract C8) and all its output
	// has been handed over. Every caller gets the same answer. The context is
	// the one given to Start; when that ends, the command's process tree is
	// stopped, and errors.Is finds its error (contract C6).
	Wait() (*Result, error)
}
