package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// opening is one try to create or attach, for which any number may wait.
type opening struct {
	done    chan struct{} // closed when session and err are set
	session *session
	err     error
	cancel  context.CancelFunc
	waiters int // guarded by the handle's mutex
}

// open creates or attaches on first use. The try belongs to the handle and not
// to the caller who began it: one who is cancelled leaves at once, and the try
// goes on for the others and for the ref (contract L2).
func (h *handle) open(ctx context.Context) (*session, error) {
	op := h.op("open", true)
	if err := ctx.Err(); err != nil {
		return nil, op.wrap(err)
	}
	h.mu.Lock()
	if s := h.session; s != nil {
		h.mu.Unlock()
		return s, nil
	}
	o := h.opening
	if o == nil {
		if err := h.p.host.begin(); err != nil {
			h.mu.Unlock()
			return nil, op.wrap(err)
		}
		o = &opening{done: make(chan struct{})}
		var tryCtx context.Context
		tryCtx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
		h.opening = o
		go h.run(tryCtx, o)
	}
	o.waiters++
	h.mu.Unlock()
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		h.leave(o)
		return nil, op.wrap(ctx.Err())
	}
}

// leave is for a caller who waits no longer. An attach that nobody waits for is given
// up: there is a ref already, and a service that does not answer would only hold up
// the end of the host.
func (h *handle) leave(o *opening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.waiters--; o.waiters > 0 || h.ref.IsZero() || h.opening != o {
		return
	}
	h.opening = nil // whoever asks next begins anew
	o.cancel()
}

// run makes one try and tells all who wait.
func (h *handle) run(ctx context.Context, o *opening) {
	defer h.p.host.tasks.Done()
	defer o.cancel()
	defer context.AfterFunc(h.p.host.ctx, o.cancel)() //nolint:contextcheck // it ends with the host too

	o.session, o.err = h.observedConnect(ctx)
	if o.err != nil && h.p.host.ctx.Err() != nil && errors.Is(o.err, context.Canceled) {
		o.err = h.op("open", true).wrap(errClosed)
	}
	h.mu.Lock()
	if h.opening == o { // and not given up
		h.session, h.opening = o.session, nil // a failed try is repeated by the next operation
	}
	h.mu.Unlock()
	close(o.done)
}

// observedConnect is connect as spans and figures show it.
func (h *handle) observedConnect(ctx context.Context) (*session, error) {
	op := opCreate
	if _, byRef := h.Ref(); byRef {
		op = opAttach
	}
	ctx, ob := h.p.observe(ctx, op)
	s, err := h.connect(ctx)
	if ref, ok := h.Ref(); ok && ob != nil {
		ob.set(attrWorkspace.String(ref.String()))
	}
	ob.end(err)
	return s, err
}

// connect creates, or attaches once there is a ref. An attach is made again if
// the plugin dies of it: it changes nothing that the same call would not.
func (h *handle) connect(ctx context.Context) (*session, error) {
	for retried := false; ; retried = true {
		ref, byRef := h.Ref()
		op := h.op("create", true)
		if byRef {
			op = h.op("attach", false)
		}
		s, died, err := h.try(ctx, op, ref)
		if !died || !byRef || retried {
			return s, err
		}
	}
}

func (h *handle) try(ctx context.Context, op operation, ref workspace.Ref) (_ *session, died bool, _ error) {
	inst, err := h.p.acquire(ctx)
	if err != nil {
		return nil, false, op.wrap(err)
	}
	defer inst.Release()
	overrides, err := h.p.overrides(inst.Describe(), h.config, h.env)
	if err != nil {
		return nil, false, op.wrap(err)
	}
	callCtx, end := bounded(ctx, h.p.host.deadlines.Open)
	defer end()
	var stream grpc.ServerStreamingClient[berthv1.OpenResponse]
	if ref.IsZero() {
		stream, err = inst.Client().Create(callCtx, &berthv1.CreateRequest{Token: h.token, Name: h.name, Labels: h.labels, Overrides: overrides})
	} else {
		stream, err = inst.Client().Attach(callCtx, &berthv1.AttachRequest{Workspace: &berthv1.WorkspaceKey{Id: ref.ID}})
	}
	for err == nil {
		var msg *berthv1.OpenResponse
		if msg, err = stream.Recv(); err != nil {
			break
		}
		if opened := msg.GetOpened(); opened != nil {
			s, err := h.opened(inst, op, ref, opened)
			return s, false, err
		}
		if progress := msg.GetProgress(); progress != nil {
			h.tell(progress)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, false, h.p.fault(inst, op, "the plugin ended its answer without a workspace")
	}
	died, err = h.p.failure(ctx, callCtx, inst, op, err)
	return nil, died, err
}

// tell passes on what a plugin does.
func (h *handle) tell(progress *berthv1.Progress) {
	text := h.p.redact(string(progress.GetText()))
	h.p.logger.Debug("opening a workspace", "what", shorten(strings.ToValidUTF8(text, "?")),
		"done", progress.GetDone(), "total", progress.GetTotal())
	if h.progress != nil {
		h.progress(workspace.Progress{Text: text, Done: progress.GetDone(), Total: progress.GetTotal(), Unit: progress.GetUnit()})
	}
}

// opened records what a plugin answered. The ref comes first: what follows may
// fail, and the workspace must be found again (contract L2).
func (h *handle) opened(inst *supervisor.Instance, op operation, want workspace.Ref, opened *berthv1.Opened) (*session, error) {
	ref := workspace.Ref{Provider: h.p.name, ID: opened.GetId()}
	if err := ref.Validate(); err != nil {
		return nil, h.p.fault(inst, op, fmt.Sprintf("the plugin answered an id that is none: %v", err))
	}
	if want.IsZero() {
		h.mu.Lock()
		h.ref = ref
		h.mu.Unlock()
	} else if ref != want {
		return nil, h.p.fault(inst, op, fmt.Sprintf("the plugin answered another workspace, %s", ref))
	}
	dir := string(opened.GetWorkingDir())
	if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.IndexByte(dir, 0) >= 0 {
		return nil, h.p.fault(inst, op, fmt.Sprintf("the plugin answered the working directory %q, which is not absolute and canonical", shorten(dir)))
	}
	if n := len(opened.GetRunRegistry()); n > wire.MaxRunRegistry {
		return nil, h.p.fault(inst, op, fmt.Sprintf("the plugin answered a registry of runs of %d bytes", n))
	}
	h.noteRegistry(opened.GetRunRegistry())
	return &session{
		key:      &berthv1.WorkspaceKey{Id: ref.ID, Incarnation: opened.GetIncarnation()},
		dir:      dir,
		features: wire.ToFeatures(append(opened.GetFeatures(), inst.Configured().GetFeatures()...)),
	}, nil
}

// noteRegistry keeps who notes the workspace's runs.
func (h *handle) noteRegistry(registry []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.registry = registry
}

// knownRegistry is who notes the workspace's runs, as far as was told.
func (h *handle) knownRegistry() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.registry
}
