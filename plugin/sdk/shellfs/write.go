package shellfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// frameSize is how much of a file travels in one frame: one dd in the workspace
// writes it. It bounds what a writer holds.
const frameSize = 256 << 10

// permBits are the bits of a mode that a write may set.
const permBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// writer sends a file in frames to a script that gathers them under a hidden name
// and puts that in place at the end (contract F2).
type writer struct {
	path string
	ctx  context.Context // ends the write; see [workspace.Filesystem]
	stop func() bool

	mu      sync.Mutex
	process Process
	frame   []byte
	sent    int64
	done    bool
	err     error // why it was aborted
}

// Create writes through an existing link and makes missing parents.
func (f *FS) Create(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	const op = "create"
	if err := workspace.ValidatePath(op, path); err != nil {
		return nil, err
	}
	if opts.Mode&^permBits != 0 {
		return nil, pathError(op, path, fmt.Errorf("mode %v is no permission: %w", opts.Mode, workspace.ErrInvalid))
	}
	if opts.Mode == 0 {
		opts.Mode = workspace.DefaultFileMode
	}
	modTime := ""
	if !opts.ModTime.IsZero() {
		if !f.nanoseconds {
			return nil, pathError(op, path, errors.ErrUnsupported)
		}
		modTime = touchTime(opts.ModTime)
	}
	process, err := f.runner.Run(ctx, []string{
		"op_create", f.path(path), octal(opts.Mode), flag(opts.Exclusive), flag(opts.Append), modTime, stageName(),
	})
	if err != nil {
		return nil, pathError(op, path, err)
	}
	const ready = "ready\n"
	answer := make([]byte, len(ready))
	_, err = io.ReadFull(process, answer)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if err = wait(process); err == nil {
			err = io.ErrUnexpectedEOF
		}
	case err == nil && string(answer) != ready:
		err = fmt.Errorf("the script of a write says %q", answer)
	}
	if err != nil {
		_ = process.Close()
		return nil, pathError(op, path, err)
	}
	w := &writer{path: path, ctx: ctx, process: process}
	w.stop = context.AfterFunc(ctx, func() { w.abort(ctx.Err()) })
	return w, nil
}

// stageName is the name of a file that is not complete.
func stageName() string { return ".berth-" + rand.Text() + ".tmp" }

// Chtimes changes the modification time, links followed.
func (f *FS) Chtimes(ctx context.Context, path string, modTime time.Time) error {
	if !f.nanoseconds {
		return pathError("chtimes", path, errors.ErrUnsupported)
	}
	_, err := f.do(ctx, "chtimes", path, "op_chtimes", touchTime(modTime), f.path(path))
	return err
}

// touchTime is a time as touch reads it.
func touchTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

func (w *writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		if w.done {
			return n, w.closed("write")
		}
		took := min(len(p), frameSize-len(w.frame))
		w.frame = append(w.frame, p[:took]...)
		p = p[took:]
		n += took
		if len(w.frame) == frameSize {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush sends a frame.
func (w *writer) flush() error {
	if len(w.frame) == 0 {
		return nil
	}
	head := "d " + strconv.Itoa(len(w.frame)) + "\n"
	_, err := io.WriteString(w.process, head)
	if err == nil {
		_, err = w.process.Write(w.frame)
	}
	w.sent += int64(len(w.frame))
	w.frame = w.frame[:0]
	if err != nil {
		return w.fail(err)
	}
	return nil
}

// fail ends a write that its script did not take, and prefers the script's reason.
func (w *writer) fail(err error) error {
	if _, readErr := io.Copy(io.Discard, w.process); readErr == nil {
		if reason := wait(w.process); reason != nil {
			err = reason
		}
	}
	if ctxErr := w.ctx.Err(); ctxErr != nil {
		err = ctxErr
	}
	w.done, w.err = true, err
	_ = w.process.Close()
	return pathError("write", w.path, err)
}

func (w *writer) closed(op string) error {
	if w.err != nil {
		return pathError(op, w.path, w.err)
	}
	return pathError(op, w.path, fs.ErrClosed)
}

// Close publishes what was written.
func (w *writer) Close() error {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		if w.err != nil {
			return w.closed("close")
		}
		return nil
	}
	if err := w.ctx.Err(); err != nil {
		w.end(err)
		return w.closed("close")
	}
	if err := w.flush(); err != nil {
		return err
	}
	if _, err := io.WriteString(w.process, "c "+strconv.FormatInt(w.sent, 10)+"\n"); err != nil {
		return w.fail(err)
	}
	w.done = true
	_, err := io.Copy(io.Discard, w.process)
	if err == nil {
		err = wait(w.process)
	}
	if closeErr := w.process.Close(); err == nil {
		err = closeErr
	}
	w.err = err
	return pathError("close", w.path, err)
}

// Abort leaves the file as it was. After Close it does nothing.
func (w *writer) Abort() error {
	w.stop()
	w.abort(nil)
	return nil
}

// abort may find a Write that waits for the workspace, which closing the process
// wakes.
func (w *writer) abort(cause error) {
	locked := w.mu.TryLock()
	if !locked {
		_ = w.process.Close()
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if !w.done {
		w.end(cause)
	}
}

func (w *writer) end(cause error) {
	w.done, w.err = true, cause
	_ = w.process.Close() // the script removes what it has at the end of its input
}
