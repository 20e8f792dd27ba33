package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// operation is what one call is about, for its deadline and its errors.
type operation struct {
	// name is such as "stat", runID that of a run.
	name, runID string
	// on is the ref, or what else the call is about.
	on string
	// changes says that the call may change something: then it is never made
	// twice (contract B2), and one without an answer may have been carried out.
	changes bool
}

// errDeadline and errIdle are why a call was given up by the host itself.
var (
	errDeadline = errors.New("the plugin's time for this call passed")
	errIdle     = errors.New("the plugin made no progress")
)

// bounded returns a context for a call to a plugin: it ends when ctx is
// cancelled or d passed, but the plugin is not told of any deadline, since its
// own limit and not ours is what brings partial results back.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	timer := time.AfterFunc(d, func() { cancel(errDeadline) })
	return callCtx, func() {
		stop()
		timer.Stop()
		cancel(nil)
	}
}

// unary makes one call, and once more if the plugin died of a call that changes
// nothing (contract B2).
func unary[Resp any](ctx context.Context, p *provider, op operation, do func(context.Context, berthv1.ProviderClient) (Resp, error)) (Resp, error) {
	d := p.host.deadlines.Read
	if op.changes {
		d = p.host.deadlines.Change
	}
	for retried := false; ; retried = true {
		resp, died, err := attempt(ctx, p, op, d, do)
		if !died || op.changes || retried {
			return resp, err
		}
	}
}

func attempt[Resp any](ctx context.Context, p *provider, op operation, d time.Duration, do func(context.Context, berthv1.ProviderClient) (Resp, error)) (resp Resp, died bool, err error) {
	inst, err := p.acquire(ctx)
	if err != nil {
		return resp, false, op.wrap(err)
	}
	defer inst.Release()
	callCtx, end := bounded(ctx, d)
	defer end()
	if resp, err = do(callCtx, inst.Client()); err == nil {
		return resp, false, nil
	}
	died, err = p.failure(ctx, callCtx, inst, op, err)
	return resp, died, err
}

// wrap says what was being done, unless err says it already.
func (op operation) wrap(err error) error {
	var plug *workspace.PluginError
	var config *ConfigError
	if errors.As(err, &plug) || errors.As(err, &config) {
		return err
	}
	name := op.name
	if op.runID != "" {
		name += " " + op.runID
	}
	return fmt.Errorf("%s: %s: %w", op.on, name, err)
}

func (op operation) wrapIfAny(err error) error {
	if err == nil {
		return nil
	}
	return op.wrap(err)
}

// failure tells what an error of a call means: the plugin's own answer, the end
// of our caller's context, a deadline of ours, or a fault of the plugin process.
// died says that the process is gone.
func (p *provider) failure(ctx, callCtx context.Context, inst *supervisor.Instance, op operation, err error) (died bool, _ error) {
	if detail := wire.Detail(err); detail != nil {
		return false, op.wrap(p.remote(detail))
	}
	switch cause := context.Cause(callCtx); {
	case ctx.Err() != nil:
		return false, op.wrap(ctx.Err())
	case errors.Is(cause, errDeadline), errors.Is(cause, errIdle):
		return false, p.fault(inst, op, cause.Error())
	}
	st, _ := status.FromError(err)
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.Internal, codes.DataLoss, codes.DeadlineExceeded:
		// All of these may be a connection that broke. inst.Error waits a moment
		// for the process's end, which is what tells.
		fault := inst.Error(op.name, op.runID, err, op.changes)
		fault.Workspace = op.on
		return exited(inst), fault
	case codes.ResourceExhausted:
		return false, p.tooLarge(inst, op, st)
	}
	return false, op.wrap(p.foreign(st))
}

// remote reads an error of the plugin, without the configuration's secrets: one
// that is not made with our SDK may put them anywhere (contract B7).
func (p *provider) remote(detail *berthv1.ErrorDetail) error {
	return supervisor.Remote(detail, p.redact)
}

// fault is a plugin that did not do what the protocol asks for; it lives on.
func (p *provider) fault(inst *supervisor.Instance, op operation, reason string) *workspace.PluginError {
	return &workspace.PluginError{
		Provider: p.name, Op: op.name, Workspace: op.on, RunID: op.runID, PID: inst.PID(),
		MayHaveExecuted: op.changes, Reason: reason,
	}
}

func exited(inst *supervisor.Instance) bool {
	select {
	case <-inst.Exited():
		return true
	default:
		return false
	}
}
