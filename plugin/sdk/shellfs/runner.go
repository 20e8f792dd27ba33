package shellfs

import (
	"context"
	_ "embed"
	"io"
)

//go:embed operations.sh
var library string

// Script is what a [Runner] runs: it defines the operations, and runs the one that
// its arguments name.
func Script() string { return Library() + "\"$@\"\n" }

// Library is the part of [Script] that only defines the operations. A runner that
// keeps a shell evaluates it once, and then each call's arguments in a subshell.
func Library() string { return library }

// KeepsInput is the highest exit status of a script that has read just the input
// that it was sent. After any other a shell that is kept must not be used again.
const KeepsInput = 77

// Runner runs [Script] in a workspace.
type Runner interface {
	// Run runs the script under /bin/sh with args, any bytes but NUL, as the user
	// of the workspace's commands. If the context ends before Close, that ends the
	// script as Close does.
	Run(ctx context.Context, args []string) (Process, error)
}

// Process is a script that runs.
type Process interface {
	// Write writes to the script's input. The input must not end before Close: a
	// write that is not complete is given up at its end.
	io.Writer
	// Read reads the script's output, up to its end.
	io.Reader
	// Wait returns the script's exit status and the beginning of its stderr, once
	// the output was read to its end. A status that is not known is an error.
	Wait() (status int, stderr []byte, err error)
	// Close ends the script if it is still going: by ending its input and output
	// rather than by a signal, after which it could not clean up. It may be called
	// more than once, and while another method waits.
	Close() error
}
