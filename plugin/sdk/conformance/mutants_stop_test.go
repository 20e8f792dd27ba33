package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func stopMutants() []mutant {
	return []mutant{
		{check: "C5_TimeoutStopsTheTree", fault: "leaves children", bend: leaks},
		{check: "C5_TimeoutStopsAForkStorm", fault: "leaves children", bend: leaks},
		{check: "C5_TermComesFirst", fault: "kills at once", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				timeout := cmd.Timeout
				if timeout == 0 {
					return ws.Run(ctx, cmd)
				}
				cmd.Timeout = 0
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				pause(timeout)
				err = p.Signal(ctx, workspace.SignalKill)
				if _, werr := p.Wait(); err != nil || werr != nil {
					return nil, errors.Join(err, werr)
				}
				return nil, &workspace.TimeoutError{Timeout: timeout, Stdout: []byte("ready\n")}
			}}
		})},
		{check: "C5_KillFollows", fault: "leaves who does not hear TERM", bend: leaks},
		{check: "C5_KillFollows", fault: "late", hangs: true, bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if cmd.Timeout > 0 {
				pause(stopTime + 2*time.Second)
			}
			return res, err
		})},
		{check: "C5_ErrorKeepsTheBeginnings", fault: "swaps the streams", bend: bendTimeout(func(late *workspace.TimeoutError) {
			late.Stdout, late.Stderr = late.Stderr, late.Stdout
		})},
		{check: "C5_ErrorKeepsTheBeginnings", fault: "keeps next to nothing", bend: bendTimeout(func(late *workspace.TimeoutError) { late.Stdout = late.Stdout[:min(len(late.Stdout), 1)] })},
		{check: "C5_ErrorKeepsTheBeginnings", fault: "keeps the ends", bend: bendTimeout(func(late *workspace.TimeoutError) {
			if len(late.Stderr) > 1000 {
				late.Stderr = late.Stderr[len(late.Stderr)-1000:]
			}
		})},
		{check: "C5_StartedCommandsTimeOutToo", fault: "a started command was killed", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					res, err := p.Wait()
					var late *workspace.TimeoutError
					if errors.As(err, &late) {
						return &workspace.Result{ExitCode: 137}, nil
					}
					return res, err
				}}, nil
			}}
		})},
		{check: "C5_ZeroIsNone", fault: "zero is a default", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Timeout == 0 && slices.Contains(cmd.Args, "sleep") {
				cmd.Timeout = 500 * time.Millisecond
			}
		})},
		{check: "C5_NegativeIsInvalid", fault: "negative is none", bend: bendCommand(func(cmd *workspace.Command) { cmd.Timeout = max(cmd.Timeout, 0) })},
		{check: "C5_CreatingDoesNotCount", fault: "counts from the call on", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				began := time.Now()
				if _, err := ws.WorkingDir(ctx); err != nil {
					return nil, err
				}
				if timeout := cmd.Timeout; timeout > 0 {
					if cmd.Timeout -= time.Since(began); cmd.Timeout <= 0 {
						return nil, &workspace.TimeoutError{Timeout: timeout}
					}
				}
				return ws.Run(ctx, cmd)
			}}
		})},
		{check: "C5_TimeoutAppliesAfterAttach", fault: "an attached handle has none", hangs: true, bend: attaching(func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error) {
			ws, err := h.Attach(ref)
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				cmd.Timeout = 0
				return ws.Run(ctx, cmd)
			}}, err
		})},

		{check: "C6_CancelStopsTheTree", fault: "leaves the command", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(context.WithoutCancel(ctx), cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}}, nil
			}}
		})},
		{check: "C6_CancelStopsTheTree", fault: "is another error", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, context.Canceled) {
				return nil, errors.New("stopped")
			}
			return res, err
		})},
		{check: "C6_DeadlineIsNoTimeoutError", fault: "is a *TimeoutError", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, errors.Join(err, &workspace.TimeoutError{Timeout: cmd.Timeout})
			}
			return res, err
		})},
		{check: "C6_CancelledBeforehandStartsNothing", fault: "starts it all the same", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				res, err := ws.Run(context.WithoutCancel(ctx), cmd)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return res, err
			}}
		})},
	}
}
