package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// writer streams one file. Nothing of it is visible before its end was sent.
type writer struct {
	h    *handle
	ctx  context.Context //nolint:containedctx // as the contract of Create says: it lasts until Close
	op   operation
	file string

	mu      sync.Mutex
	held    releaser
	stream  grpc.ClientStreamingClient[berthv1.WriteFileRequest, berthv1.WriteFileResponse]
	callCtx context.Context //nolint:containedctx // of the stream
	watch   *watch
	sent    int64
	done    bool
	err     error // what Write and Close say from now on

	observation *observation // until the end

	aborted   context.CancelFunc
	abandoned atomic.Bool // by Abort
}

// Create writes through an existing link and makes missing parents (contract
// F2). What is wrong with the path may be told by the first Write or by Close.
func (h *handle) Create(ctx context.Context, file string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	const name = "create"
	if err := workspace.ValidatePath(name, file); err != nil {
		return nil, err
	}
	if opts.Mode.Type() != 0 {
		return nil, &fs.PathError{Op: name, Path: file, Err: fmt.Errorf("mode %s: want permissions alone: %w", opts.Mode, workspace.ErrInvalid)}
	}
	if opts.Exclusive && opts.Append {
		return nil, &fs.PathError{Op: name, Path: file, Err: fmt.Errorf("exclusive and append exclude each other: %w", workspace.ErrInvalid)}
	}
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{h: h, op: operation{name: "write", on: h.on(), changes: true}, file: file}
	w.ctx, w.aborted = context.WithCancel(ctx)
	inst, err := h.p.acquire(ctx)
	if err != nil {
		w.aborted()
		return nil, w.op.wrap(err)
	}
	w.held.inst = inst
	start := &berthv1.WriteFileStart{Workspace: s.key, Path: []byte(file), Exclusive: opts.Exclusive, Append: opts.Append, ModTime: wire.FromTime(opts.ModTime)}
	if opts.Mode != 0 {
		mode := permissions(opts.Mode)
		start.Mode = &mode
	}
	w.callCtx, w.watch = watched(w.ctx, h.p.host.deadlines.Idle)
	w.watch.begin()
	defer w.watch.pause()
	if w.stream, err = inst.Client().WriteFile(w.callCtx); err == nil { //nolint:contextcheck // made of ctx
		err = w.stream.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: start}})
	}
	if err != nil {
		err = w.fail(err)
		w.aborted()
		return nil, err
	}
	// One that nobody closes holds its plugin no longer than its context.
	context.AfterFunc(w.ctx, w.expire) //nolint:contextcheck // it is the writer's own
	return w, nil
}

// expire lets go of what a writer holds whose context ended; its stream is
// broken already.
func (w *writer) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.finish(w.gone())
	}
}

// gone is why there is nothing to write to: Abort, or the context's end.
func (w *writer) gone() error {
	if w.abandoned.Load() {
		return &fs.PathError{Op: "write", Path: w.file, Err: fs.ErrClosed}
	}
	return w.op.wrap(w.ctx.Err())
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return 0, w.ended()
	}
	n := 0
	for n < len(p) {
		chunk := p[n:min(n+wire.ChunkSize, len(p))]
		w.watch.begin()
		err := w.stream.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: chunk}})
		w.watch.pause()
		if err != nil {
			return n, w.fail(err)
		}
		n += len(chunk)
		w.sent += int64(len(chunk))
	}
	return n, nil
}

// Close publishes what was written.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return w.err
	}
	// A context that has ended may not have reached the stream yet: the end must
	// not be sent on it.
	if w.ctx.Err() != nil {
		w.finish(w.gone())
		return w.err
	}
	// Publishing may take a service long: it is a call that changes something.
	timer := time.AfterFunc(w.h.p.host.deadlines.Change, func() { w.watch.cancel(errDeadline) })
	defer timer.Stop()
	err := w.stream.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: w.sent}})
	if err != nil {
		return w.fail(err)
	}
	resp, err := w.stream.CloseAndRecv()
	if err != nil {
		return w.fail(err)
	}
	if resp.GetWritten() != w.sent {
		w.finish(w.h.p.fault(w.held.inst, w.op, fmt.Sprintf("the file is incomplete: %d bytes were sent, the plugin wrote %d", w.sent, resp.GetWritten())))
		return w.err
	}
	w.finish(nil)
	return nil
}

// Abort leaves the file as it was. It ends a Write that waits.
func (w *writer) Abort() error {
	w.abandoned.Store(true)
	w.aborted()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.finish(w.gone())
	}
	return nil
}

// fail finishes with the error that the stream ended with: Send itself says no
// more than that it did.
func (w *writer) fail(err error) error {
	if errors.Is(err, io.EOF) {
		w.watch.begin()
		if err = w.stream.RecvMsg(new(berthv1.WriteFileResponse)); err == nil {
			w.finish(w.h.p.fault(w.held.inst, w.op, "the plugin ended the write before its end"))
			return w.err
		}
	}
	_, fault := w.h.p.failure(w.ctx, w.callCtx, w.held.inst, w.op, err)
	w.finish(pathError("write", w.file, fault))
	return w.err
}

func (w *writer) finish(err error) {
	w.done, w.err = true, err
	w.tellEnd()
	w.watch.end()
	w.held.release()
	w.aborted()
}

// ended is what a Write after the end says.
func (w *writer) ended() error {
	if w.err != nil {
		return w.err
	}
	return &fs.PathError{Op: "write", Path: w.file, Err: fs.ErrClosed}
}
