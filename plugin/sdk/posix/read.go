package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// reader reads a file as it was when opened: up to the size that it had then.
type reader struct {
	io.Reader
	ctx  context.Context // ends the reading; see [workspace.Filesystem]
	file *os.File
	info workspace.FileInfo
	path string
}

// Open reads a regular file. Anything else, a FIFO or a device, is an error at
// once (contract F3, F8).
func (w *Workspace) Open(ctx context.Context, path string, opts workspace.ReadOptions) (r workspace.FileReader, err error) {
	err = w.do(ctx, "open", path, func(abs string) error {
		if opts.Offset < 0 || opts.Length < 0 {
			return fmt.Errorf("offset %d or length %d is negative: %w", opts.Offset, opts.Length, workspace.ErrInvalid)
		}
		file, info, err := openRegular(abs, os.O_RDONLY)
		if err != nil {
			return err
		}
		length := opts.Length
		// Files that the kernel makes up, as in /proc, have no size but content.
		if size := info.Size(); size > 0 {
			rest := max(size-opts.Offset, 0)
			if length == 0 || length > rest {
				length = rest
			}
		} else if length == 0 {
			length = 1<<63 - 1 - opts.Offset
		}
		read := &reader{
			Reader: io.NewSectionReader(file, opts.Offset, length),
			ctx:    ctx, file: file, path: path, info: fileInfo(path, info),
		}
		readLink(abs, &read.info)
		r = read
		return nil
	})
	return r, err
}

// openRegular opens a file that exists, if it is a regular one. It is looked at
// before, since opening a device can do something, and after, since it may have
// been replaced in between.
func openRegular(abs string, flag int) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(abs)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(abs, flag|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// regular refuses whatever is no regular file: it would not end, or wait.
func regular(info fs.FileInfo) error {
	var kind string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	default:
		kind = "of type " + mode.Type().String()
	}
	return fmt.Errorf("is %s, not a regular file: %w", kind, workspace.ErrInvalid)
}

// Info is the file as it was when opened.
func (r *reader) Info() workspace.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	leave, err := enterCall(r.ctx)
	if err == nil {
		defer leave()
		err = r.ctx.Err()
	}
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: r.path, Err: err}
	}
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &fs.PathError{Op: "read", Path: r.path, Err: cause(err)}
	}
	return n, err
}

// Close closes the file.
func (r *reader) Close() error { return r.file.Close() }
