package shellfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// reader reads a file up to the size that it had when it was opened.
type reader struct {
	path    string
	process Process
	from    io.Reader
	info    workspace.FileInfo
	left    int64
	err     error
}

// Open reads a regular file. Anything else, a FIFO or a device, is an error at
// once (contract F3, F8).
func (f *FS) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	const op = "open"
	if err := workspace.ValidatePath(op, path); err != nil {
		return nil, err
	}
	if opts.Offset < 0 || opts.Length < 0 {
		return nil, pathError(op, path, fmt.Errorf("offset %d or length %d is negative: %w", opts.Offset, opts.Length, workspace.ErrInvalid))
	}
	process, err := f.runner.Run(ctx, []string{"op_open", f.path(path), strconv.FormatInt(opts.Offset, 10), strconv.FormatInt(opts.Length, 10)})
	if err != nil {
		return nil, pathError(op, path, err)
	}
	limited := &io.LimitedReader{R: process, N: maxHeader}
	buffered := bufio.NewReader(limited)
	r := &reader{path: path, process: process, from: buffered}
	about, err := buffered.ReadString('\n')
	target := ""
	if err == nil {
		target, err = buffered.ReadString(0)
	}
	switch {
	case errors.Is(err, io.EOF) && limited.N == 0:
		err = errTooLong
	case errors.Is(err, io.EOF):
		if err = wait(process); err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	limited.N = math.MaxInt64
	if err == nil {
		r.info, err = parseInfo(baseName(f.path(path)), about, strings.TrimSuffix(target, "\x00"))
	}
	if err != nil {
		_ = process.Close()
		return nil, pathError(op, path, err)
	}
	r.left = int64(math.MaxInt64)
	if r.info.Size > 0 { // what the kernel makes up has no size
		r.left = max(r.info.Size-opts.Offset, 0)
	}
	if opts.Length > 0 {
		r.left = min(r.left, opts.Length)
	}
	return r, nil
}

// Info is the file as it was when opened.
func (r *reader) Info() workspace.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.left == 0 {
		r.err = r.finish()
		return 0, r.err
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF):
		r.err = r.finish()
	case err != nil:
		r.err = pathError("read", r.path, err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// overread is how much of what was added to a file since is read so that its
// shell can be used again.
const overread = 1 << 20

// finish is the end of the file, or why it is not.
func (r *reader) finish() error {
	if n, err := io.CopyN(io.Discard, r.from, overread); n == overread {
		return io.EOF // Close ends the script
	} else if !errors.Is(err, io.EOF) {
		return pathError("read", r.path, err)
	}
	if err := wait(r.process); err != nil {
		return pathError("read", r.path, err)
	}
	return io.EOF
}

// Close ends the reading.
func (r *reader) Close() error { return r.process.Close() }
