package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// permBits are the bits of a mode that a write may set.
const permBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// writer gathers what is written in an unnamed file and puts it in place when
// closed (contract F2).
type writer struct {
	w      *Workspace
	ctx    context.Context // ends the writing; see [workspace.Filesystem]
	path   string          // as given
	target string          // links followed
	opts   workspace.WriteOptions
	stop   func() bool // no longer aborts when the context ends

	mu     sync.Mutex
	staged *staged
	old    fs.FileInfo // of the file that is there, or nil
	done   bool
	err    error // why it was aborted, for Write and Close
}

// Create writes through an existing link and makes missing parents.
func (w *Workspace) Create(ctx context.Context, path string, opts workspace.WriteOptions) (fw workspace.FileWriter, err error) {
	err = w.do(ctx, "create", path, func(abs string) error {
		if opts.Mode&^permBits != 0 {
			return fmt.Errorf("mode %v is no permission: %w", opts.Mode, workspace.ErrInvalid)
		}
		if opts.Mode == 0 {
			opts.Mode = workspace.DefaultFileMode
		}
		target, old, err := writeTarget(abs, opts.Exclusive)
		if err != nil {
			return err
		}
		wr := &writer{w: w, ctx: ctx, path: path, target: target, opts: opts, old: old}
		if old != nil {
			if err := writable(target); err != nil {
				return err
			}
		}
		if wr.staged, err = newStaged(target, old != nil); err != nil {
			return err
		}
		wr.stop = context.AfterFunc(ctx, func() { wr.abort(ctx.Err()) })
		fw = wr
		return nil
	})
	return fw, err
}

// writeTarget follows the links of a path's last element, the last of which may
// dangle, makes the parents of what they lead to, and tells what is there.
func writeTarget(abs string, exclusive bool) (string, fs.FileInfo, error) {
	for range maxWriteLinks {
		switch base := abs[strings.LastIndexByte(abs, '/')+1:]; base {
		case "", ".", "..": // names a directory, whatever is there
			if info, err := os.Stat(abs); err == nil && !info.IsDir() {
				return "", nil, syscall.ENOTDIR
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", nil, err
			}
			return "", nil, syscall.EISDIR
		}
		info, err := os.Lstat(abs)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return abs, nil, mkdirAll(filepathDir(abs))
		case err != nil:
			return "", nil, err
		case exclusive:
			return "", nil, fs.ErrExist
		case info.Mode()&fs.ModeSymlink == 0:
			return abs, info, regular(info)
		}
		link, err := os.Readlink(abs)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(link) {
			link = filepathDir(abs) + "/" + link
		}
		abs = link
	}
	return "", nil, syscall.ELOOP
}

// maxWriteLinks is after how many links a path is called a loop, as in Linux.
const maxWriteLinks = 40

// filepathDir is the path's directory, with .. and links left as they are.
func filepathDir(abs string) string { return trimSlashes(abs[:strings.LastIndexByte(abs, '/')+1]) }

// writable reports whether this user may write to the file itself.
func writable(target string) error {
	file, _, err := openRegular(target, os.O_WRONLY)
	if errors.Is(err, syscall.ETXTBSY) { // a program that runs is replaced, not overwritten
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// copies reports whether the write is made in place, because a new file in the
// old one's place would change more than the content.
func (wr *writer) copies() bool {
	if wr.old == nil {
		return wr.staged.elsewhere
	}
	return wr.opts.Append || wr.staged.elsewhere || !replaceable(wr.target, wr.old, wr.staged.file)
}

func (wr *writer) Write(p []byte) (int, error) {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	if wr.done {
		return 0, wr.pathError("write", wr.closedErr())
	}
	leave, err := enterCall(wr.ctx)
	if err != nil {
		return 0, wr.pathError("write", err)
	}
	defer leave()
	n, err := wr.staged.file.Write(p)
	if err != nil {
		err = wr.pathError("write", err)
	}
	return n, err
}

func (wr *writer) closedErr() error {
	if wr.err != nil {
		return wr.err
	}
	return fs.ErrClosed
}

func (wr *writer) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: wr.path, Err: cause(err)}
}

// Close publishes what was written. After Abort it does nothing, unless that was
// the context's doing.
func (wr *writer) Close() error {
	wr.stop()
	wr.mu.Lock()
	defer wr.mu.Unlock()
	if wr.done {
		if wr.err != nil {
			return wr.pathError("close", wr.err)
		}
		return nil
	}
	wr.done = true
	leave, err := enterCall(wr.ctx)
	if err != nil {
		wr.staged.discard()
		return wr.pathError("close", err)
	}
	defer leave()
	if err = wr.w.available(); err == nil {
		if err = wr.publish(); err != nil {
			err = wr.pathError("close", err)
		}
	}
	wr.staged.discard()
	if gone := wr.w.available(); err != nil && errors.Is(gone, workspace.ErrUnavailable) {
		return gone
	}
	return err
}

func (wr *writer) publish() error {
	// The file may have come, gone or changed since: what counts is now.
	old, err := os.Lstat(wr.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		wr.old = nil
	case err != nil:
		return err
	case wr.opts.Exclusive:
		return fs.ErrExist
	default:
		if err := regular(old); err != nil {
			return err
		}
		wr.old = old
	}
	if wr.copies() {
		return wr.copyInPlace()
	}
	mode := wr.opts.Mode
	if wr.old != nil {
		mode = wr.old.Mode() & permBits
	}
	if err := wr.staged.prepare(mode, wr.old, wr.opts.ModTime); err != nil {
		return err
	}
	// An append to a new file must not replace one that another has just made.
	err = wr.staged.publish(wr.target, wr.opts.Exclusive || wr.opts.Append)
	if wr.old != nil && mustCopy(err) || wr.opts.Append && !wr.opts.Exclusive && errors.Is(err, fs.ErrExist) {
		return wr.copyInPlace()
	}
	return err
}

// copyInPlace writes what was staged into the file that is there, or to its end.
// A failure half way, a full disk, takes back what was appended; what was
// overwritten is lost.
func (wr *writer) copyInPlace() error {
	flag := os.O_WRONLY
	if wr.opts.Append {
		flag |= os.O_APPEND
	}
	file, info, err := openRegular(wr.target, flag)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := wr.staged.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(file, wr.staged.file)
	switch {
	case err != nil && wr.opts.Append:
		if now, statErr := file.Stat(); statErr == nil && now.Size() == info.Size()+n {
			err = errors.Join(err, file.Truncate(info.Size()))
		}
	case err == nil && !wr.opts.Append:
		err = file.Truncate(n)
	}
	if err != nil {
		return err
	}
	if !wr.opts.ModTime.IsZero() {
		if err := os.Chtimes(wr.target, wr.opts.ModTime, wr.opts.ModTime); err != nil {
			return err
		}
	}
	return file.Close()
}

// Abort leaves the file as it was. After Close it does nothing.
func (wr *writer) Abort() error {
	wr.stop()
	wr.abort(nil)
	return nil
}

func (wr *writer) abort(cause error) {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	if !wr.done {
		wr.done, wr.err = true, cause
		wr.staged.discard()
	}
}
