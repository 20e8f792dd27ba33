package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// reader streams one file. What waits in it is bounded by gRPC's window: a
// plugin whose reader pauses is held back on this stream and on no other.
type reader struct {
	h    *handle
	s    *session
	ctx  context.Context //nolint:containedctx // as the contract of Open says: it lasts until Close
	op   operation
	file string
	opts workspace.ReadOptions
	info workspace.FileInfo

	mu      sync.Mutex // one Read at a time; Close ends it first
	held    releaser
	stream  grpc.ServerStreamingClient[berthv1.ReadFileResponse]
	callCtx context.Context //nolint:containedctx // of the stream, which may be taken up again
	watch   *watch
	part    *wire.Chunk // the last that was received; its memory holds chunk
	chunk   []byte      // received and not yet read
	got     int64       // received in all
	sent    int64       // received on this stream
	resumed bool
	err     error // what Read says from now on

	observation *observation // until the end

	closing sync.Once
	closed  context.CancelFunc
}

// Open reads a regular file; anything else is an error at once (contract F3).
func (h *handle) Open(ctx context.Context, file string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	const name = "open"
	if err := workspace.ValidatePath(name, file); err != nil {
		return nil, err
	}
	if opts.Offset < 0 || opts.Length < 0 {
		return nil, &fs.PathError{Op: name, Path: file, Err: fmt.Errorf("offset %d, length %d: neither may be negative: %w", opts.Offset, opts.Length, workspace.ErrInvalid)}
	}
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	r := &reader{h: h, s: s, op: h.op(name, false), file: file, opts: opts}
	r.ctx, r.closed = context.WithCancel(ctx)
	for retried := false; ; retried = true {
		info, died, err := r.start()
		if err == nil {
			r.info = info
			// One that nobody closes holds its plugin no longer than its context.
			context.AfterFunc(r.ctx, r.expire) //nolint:contextcheck // it is the reader's own
			return r, nil
		}
		r.hangUp()
		if !died || retried {
			r.closed()
			return nil, pathError(name, file, err)
		}
	}
}

// start opens the stream at the first byte that is still missing.
func (r *reader) start() (_ workspace.FileInfo, died bool, _ error) {
	inst, err := r.h.p.acquire(r.ctx)
	if err != nil {
		return workspace.FileInfo{}, false, r.op.wrap(err)
	}
	r.held.inst = inst
	r.callCtx, r.watch = watched(r.ctx, r.h.p.host.deadlines.Idle)
	r.sent = 0
	req := &berthv1.ReadFileRequest{Workspace: r.s.key, Path: []byte(r.file), Offset: r.opts.Offset + r.got}
	if r.opts.Length > 0 {
		req.Length = r.opts.Length - r.got
	}
	r.watch.begin()
	defer r.watch.pause()
	if r.stream, err = inst.Client().ReadFile(r.callCtx, req); err == nil {
		var msg *berthv1.ReadFileResponse
		if msg, err = r.stream.Recv(); err == nil {
			if msg.GetInfo() == nil {
				return workspace.FileInfo{}, false, r.h.p.fault(inst, r.op, "the plugin sent data before saying what the file is")
			}
			return wire.ToFileInfo(msg.GetInfo()), false, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return workspace.FileInfo{}, false, r.h.p.fault(inst, r.op, "the plugin ended the file before its beginning")
	}
	died, err = r.h.p.failure(r.ctx, r.callCtx, inst, r.op, err)
	return workspace.FileInfo{}, died, err
}

// hangUp ends the stream and lets go of the plugin.
func (r *reader) hangUp() {
	if r.watch != nil {
		r.watch.end()
		r.watch = nil
	}
	r.held.release()
	r.stream = nil
}

// Info is the file as it was when opened.
func (r *reader) Info() workspace.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.chunk) == 0 && r.err == nil && len(p) > 0 {
		r.receive()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// WriteTo saves io.Copy a buffer.
func (r *reader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		part, chunk, err := r.next()
		if len(chunk) > 0 {
			n, writeErr := w.Write(chunk)
			total += int64(n)
			if writeErr == nil && n < len(chunk) {
				writeErr = io.ErrShortWrite
			}
			if writeErr != nil {
				r.unread(part, chunk[n:])
				return total, writeErr
			}
			part.Free()
			continue
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err != nil:
			return total, err
		}
	}
}

// next takes what was received, after it has received some. The lock is not
// held while a caller's writer takes it: that may wait for ever, and Close and
// the end of the context must not wait for it.
func (r *reader) next() (*wire.Chunk, []byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.chunk) == 0 && r.err == nil {
		r.receive()
	}
	part, chunk := r.part, r.chunk
	r.part, r.chunk = nil, nil
	return part, chunk, r.err
}

// unread gives back what a writer did not take.
func (r *reader) unread(part *wire.Chunk, chunk []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(r.err, fs.ErrClosed) {
		r.part, r.chunk = part, chunk
	}
}

// receive takes one message.
func (r *reader) receive() {
	if r.part != nil { // all of it was read
		r.part.Free()
		r.part = nil
	}
	msg := new(berthv1.ReadFileResponse)
	r.watch.begin()
	part, length, err := wire.ReceiveChunk(r.stream, msg)
	r.watch.pause()
	inst := r.held.inst
	switch {
	case errors.Is(err, io.EOF):
		r.end(r.h.p.fault(inst, r.op, "the plugin ended the file before its end"))
	case err != nil:
		died, fault := r.h.p.failure(r.ctx, r.callCtx, inst, r.op, err)
		if died && r.resume(fault) {
			return
		}
		r.end(pathError("read", r.file, fault))
	case msg.GetInfo() != nil:
		r.end(r.h.p.fault(inst, r.op, "the plugin said twice what the file is"))
	case part != nil:
		r.got += int64(length)
		r.sent += int64(length)
		r.part, r.chunk = part, part.Bytes()
		if r.opts.Length > 0 && r.got > r.opts.Length {
			r.part, r.chunk = nil, nil
			r.end(r.h.p.fault(inst, r.op, fmt.Sprintf("the plugin sent more than the %d bytes asked for", r.opts.Length)))
		}
	default:
		if end, ok := msg.GetMessage().(*berthv1.ReadFileResponse_End); !ok {
			if len(msg.ProtoReflect().GetUnknown()) > 0 {
				return // of a newer version
			}
			r.end(r.h.p.fault(inst, r.op, "the plugin sent a message of no known kind"))
		} else if end.End != r.sent {
			r.end(r.h.p.fault(inst, r.op, fmt.Sprintf("the file is incomplete: the plugin says that it sent %d bytes, %d arrived", end.End, r.sent)))
		} else {
			r.end(io.EOF)
		}
	}
}

// resume takes the file up again on the restarted plugin, once, if it is the
// same file still (contract B2); the incarnation goes with the call.
func (r *reader) resume(fault error) bool {
	if r.resumed {
		return false
	}
	r.resumed = true
	r.hangUp()
	if r.opts.Length > 0 && r.got == r.opts.Length {
		r.end(io.EOF) // nothing is missing but the word for it
		return true
	}
	info, _, err := r.start()
	switch {
	case err != nil:
		r.end(errors.Join(pathError("read", r.file, err), fault))
	case info.Size != r.info.Size || !info.ModTime.Equal(r.info.ModTime):
		r.end(&fs.PathError{Op: "read", Path: r.file, Err: fmt.Errorf("the file changed while the plugin was started again: %w", fault)})
	}
	return true
}

// expire lets go of what a reader holds whose context ended.
func (r *reader) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.end(r.op.wrap(r.ctx.Err()))
	}
}

func (r *reader) end(err error) {
	r.err = err
	r.tellEnd()
	r.hangUp()
}

// Close ends a Read that waits, and the stream.
func (r *reader) Close() error {
	r.closing.Do(func() {
		r.closed()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.part, r.chunk = nil, nil
		r.end(&fs.PathError{Op: "read", Path: r.file, Err: fs.ErrClosed})
	})
	return nil
}
