package shellfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/berth-dev/berth/shared/workspace"
)

// pagedRead reads a file page by page: what op_open says of it, and its content.
type pagedRead struct {
	pagedCall
	offset, left int64  // of the next page, and what is wanted from there
	about        []byte // what was said of the file at first
	ended        bool
}

// errChangedMeanwhile is of a file whose pages would not be of one content.
var errChangedMeanwhile = fmt.Errorf("the file was changed while it was read, page by page: read it again: %w", workspace.ErrTransient)

// newPagedRead reads as the arguments of op_open say.
func newPagedRead(call pagedCall) (*pagedRead, error) {
	r := &pagedRead{pagedCall: call}
	var err, errLength error
	r.offset, err = strconv.ParseInt(call.args[2], 10, 64)
	r.left, errLength = strconv.ParseInt(call.args[3], 10, 64)
	return r, errors.Join(err, errLength)
}

func (r *pagedRead) Read(p []byte) (int, error) {
	for r.out.Len() == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	return r.out.Read(p)
}

// next gets a page. The first one keeps what comes before the content, for the
// reader; of those that follow it tells whether the file is the same still.
func (r *pagedRead) next() error {
	size := int64(r.runner.outputPage() - maxHeader)
	last := r.left > 0 && r.left <= size
	if last {
		size = r.left
	}
	out, err := r.do([]string{"op_open", r.args[1], strconv.FormatInt(r.offset, 10), strconv.FormatInt(size, 10)}, int(size)+maxHeader)
	if err != nil {
		return err
	}
	if r.status != 0 {
		r.ended = true // Wait tells
		return nil
	}
	head := bytes.IndexByte(out, 0) + 1
	if head == 0 {
		return errNotEncoded
	}
	first := r.about == nil
	if first {
		r.about = bytes.Clone(out[:head])
	} else if !bytes.Equal(r.about, out[:head]) {
		return errChangedMeanwhile
	}
	got := min(int64(len(out)-head), size) // what was added meanwhile is cut off
	out = out[:head+int(got)]
	r.offset += got
	if r.left > 0 {
		r.left -= got
	}
	r.ended = last || got < size
	if !first {
		out = out[head:]
	}
	r.out.Reset(out)
	return nil
}
