package shellfs

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

//go:embed paged.sh
var pagedLibrary string

// PagedConfig says where the files are of a workspace whose commands get arguments
// and no input, and are heard only when they have ended.
type PagedConfig struct {
	// Exec runs an argv of ASCII text to its end. Its output is ASCII too, its stderr
	// for people. A status that is not known is an error.
	Exec func(ctx context.Context, argv []string) (stdout []byte, status int, stderr []byte, err error)
	// WorkingDir is absolute and canonical; relative paths begin there.
	WorkingDir string
	// MaxArgBytes is how long an argv may be in all. Zero is 1 MiB, which Linux takes
	// unless its limit on a stack was lowered.
	MaxArgBytes int
	// Put, if it is not nil, writes a new file of at most PutBytes in the working
	// directory by a faster way than arguments: large files are gathered from such ones,
	// which are hidden and removed at once. Where it cannot, it is
	// [errors.ErrUnsupported], and the file is gathered from arguments.
	Put      func(ctx context.Context, path string, data []byte) error
	PutBytes int
	// MaxOutputBytes is how much a command may say. Zero is
	// [workspace.DefaultOutputLimit].
	MaxOutputBytes int
}

// NewPaged is [New] for such a workspace. Everything travels encoded, for a service
// that takes commands and answers as text; files in pages, one round trip each, of
// which a small file has one. A read fails if the file changes between two pages. A
// write that is given up is removed; one whose caller is killed in its middle leaves
// a hidden file, .berth-*.tmp, beside the one that it was to be.
func NewPaged(ctx context.Context, config PagedConfig) (*FS, error) {
	r := &pagedRunner{exec: config.Exec, put: config.Put, maxPut: config.PutBytes, dir: config.WorkingDir, maxArg: config.MaxArgBytes, maxOutput: config.MaxOutputBytes}
	if r.maxArg == 0 {
		r.maxArg = 1 << 20
	}
	if r.maxOutput == 0 {
		r.maxOutput = workspace.DefaultOutputLimit
	}
	const least = scriptRoom + 2*maxArgument
	if r.maxArg < least || r.maxOutput < least {
		return nil, fmt.Errorf("files by pages: %d bytes of arguments and %d of output: want %d each at least: %w", r.maxArg, r.maxOutput, least, workspace.ErrInvalid)
	}
	return probed(ctx, Config{Runner: r, WorkingDir: config.WorkingDir}, true)
}

const (
	// maxArgument is how long one argument is at most: Linux takes 128 KiB.
	maxArgument = 96 << 10
	// scriptRoom is for the script and the arguments of an operation, of which two
	// paths may be long.
	scriptRoom = 64 << 10
)

// pagedRunner makes a [Runner] of a way to run commands to their ends.
type pagedRunner struct {
	exec              func(ctx context.Context, argv []string) (stdout []byte, status int, stderr []byte, err error)
	put               func(ctx context.Context, path string, data []byte) error
	dir               string // where it puts
	maxPut            int
	maxArg, maxOutput int
	octal             atomic.Bool // the workspace has no base64
}

// Run implements [Runner].
func (r *pagedRunner) Run(ctx context.Context, args []string) (Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	call := pagedCall{runner: r, ctx: ctx, cancel: cancel, args: args}
	switch args[0] {
	case "op_open":
		return newPagedRead(call)
	case "op_create":
		return &pagedWrite{pagedCall: call, answer: *strings.NewReader("ready\n")}, nil
	}
	return &call, nil
}

// outputPage is how many bytes of an operation's output one command can tell.
func (r *pagedRunner) outputPage() int {
	if r.octal.Load() {
		const digits, perLine, margin = 4, 16, 64 // a blank and three, and the lines' ends
		return (r.maxOutput-margin)*perLine/(digits*perLine+1) - 1
	}
	const line, perLine, margin = 77, 57, 64
	return (r.maxOutput-margin)/line*perLine - 1
}

// inputPage is how many bytes of a file one command can take.
func (r *pagedRunner) inputPage() int {
	const perArgument = 16 // what an argument costs besides its text
	room := (r.maxArg - scriptRoom) / (maxArgument + perArgument) * maxArgument
	if r.octal.Load() {
		const digits = 5
		return room / digits
	}
	return room / 4 * 3
}

// argv is the command of an operation of which most bytes of output are wanted.
func (r *pagedRunner) argv(args []string, most int) []string {
	argv := make([]string, 0, len(args)+5)
	argv = append(argv, "/bin/sh", "-c", library+pagedLibrary+"decode \"$@\"\n", "sh", "r"+strconv.Itoa(most))
	for _, arg := range args {
		argv = append(argv, encodeArgument(arg))
	}
	return argv
}

// encodeArgument writes any bytes as a text that every service carries.
func encodeArgument(arg string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' }
	for i := range len(arg) {
		if !plain(arg[i]) {
			return "e" + octal3(arg)
		}
	}
	return "r" + arg
}

// octal3 writes every byte as printf's %b reads it.
func octal3[T string | []byte](data T) string {
	var b strings.Builder
	for i := range len(data) {
		fmt.Fprintf(&b, `\0%03o`, data[i])
	}
	return b.String()
}

// pages are the arguments that carry a part of a file.
func (r *pagedRunner) pages(data []byte) []string {
	var text string
	args := []string{"b"}
	if r.octal.Load() {
		args[0], text = "o", octal3(data)
	} else {
		text = base64.StdEncoding.EncodeToString(data)
	}
	const most = maxArgument / 20 * 20 // of both encodings' units
	for len(text) > most {
		args = append(args, text[:most])
		text = text[most:]
	}
	return append(args, text)
}

// do runs an operation to its end and returns at most so many bytes of what it says.
func (r *pagedRunner) do(ctx context.Context, args []string, most int) (out []byte, status int, stderr []byte, err error) {
	stdout, status, stderr, err := r.exec(ctx, r.argv(args, most))
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	out, octal, err := decodeOutput(stdout)
	if err != nil {
		if status != 0 { // the shell, or what it needs, was not there to encode anything
			return nil, status, stderr, nil
		}
		return nil, 0, nil, err
	}
	r.octal.Store(octal)
	return out, status, stderr, nil
}

var errNotEncoded = errors.New("the workspace's shell says what no script of ours does: is /bin/sh still its own?")

func decodeOutput(stdout []byte) (out []byte, octal bool, err error) {
	if len(stdout) == 0 {
		return nil, false, errNotEncoded
	}
	switch kind, text := stdout[0], stdout[1:]; kind {
	case 'b':
		decoded := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(decoded, text) // which passes over line ends
		if err != nil {
			return nil, false, errNotEncoded
		}
		return decoded[:n], false, nil
	case 'o':
		for field := range bytes.FieldsSeq(text) {
			value, err := strconv.ParseUint(string(field), 8, 8)
			if err != nil {
				return nil, true, errNotEncoded
			}
			out = append(out, byte(value))
		}
		return out, true, nil
	}
	return nil, false, errNotEncoded
}

// pagedCall is an operation that gets arguments alone.
type pagedCall struct {
	runner *pagedRunner
	ctx    context.Context //nolint:containedctx // as that of Run says: it ends the script
	cancel context.CancelFunc
	args   []string

	ran    bool
	out    bytes.Reader
	status int
	stderr []byte
}

// Write is of an operation that takes no input.
func (c *pagedCall) Write(p []byte) (int, error) { return len(p), nil }

// Read runs the operation, the first time.
func (c *pagedCall) Read(p []byte) (int, error) {
	if !c.ran {
		c.ran = true
		if err := c.run(); err != nil {
			return 0, err
		}
	}
	return c.out.Read(p)
}

func (c *pagedCall) run() error {
	page := c.runner.outputPage()
	out, err := c.do(c.args, page+1)
	if err == nil && len(out) > page {
		out, err = c.spooled()
	}
	c.out.Reset(out)
	return err
}

// do runs an operation, whose end this one's is.
func (c *pagedCall) do(args []string, most int) (out []byte, err error) {
	out, c.status, c.stderr, err = c.runner.do(c.ctx, args, most)
	return out, err
}

// spooled runs an operation again that says more than a page: into a file, which is
// then read.
func (c *pagedCall) spooled() ([]byte, error) {
	name, err := c.do(append([]string{"op_spool", stageName()}, c.args...), maxHeader)
	if err != nil || c.status != 0 {
		return nil, err
	}
	file := string(name)
	defer c.drop("op_drop", file)
	r, err := newPagedRead(pagedCall{runner: c.runner, ctx: c.ctx, cancel: c.cancel, args: []string{"op_open", file, "0", "0"}})
	if err == nil {
		err = r.next()
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, r, int64(len(r.about)))
	}
	if err != nil {
		return nil, err
	}
	out, err := readAnswer(r, maxAnswer)
	c.status, c.stderr = r.status, r.stderr
	return out, err
}

// dropWait bounds the removal of what was left half done, which nobody waits for
// longer than for a command.
const dropWait = 10 * time.Second

// drop removes a file of ours, also after the call was given up.
func (c *pagedCall) drop(args ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), dropWait)
	defer cancel()
	_, _, _, _ = c.runner.do(ctx, args, maxHeader) // who is told, cannot do better
}

// Wait tells how the operation ended.
func (c *pagedCall) Wait() (status int, stderr []byte, err error) { return c.status, c.stderr, nil }

// Close ends it.
func (c *pagedCall) Close() error {
	c.cancel()
	return nil
}
