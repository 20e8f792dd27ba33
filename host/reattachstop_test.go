package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestB3_ARunIsLookedForForAWhileOnly takes the whole window.
func TestB3_ARunIsLookedForForAWhileOnly(t *testing.T) {
	t.Parallel()
	p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
		if n == 0 {
			if err := send(stream, started()); err != nil {
				return err
			}
		}
		return broken()
	})
	began := time.Now()
	_, err := newWorkspace(t, p).Run(t.Context(), command())
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || !plug.MayHaveExecuted || !strings.Contains(plug.Reason, "not found again") {
		t.Error(err)
	}
	if took := time.Since(began); took < 8*time.Second {
		t.Errorf("given up after %v", took)
	}
}

// TestB3_ARunThatEndsEveryPluginIsGivenUp: it is attached each time, and the
// stream breaks each time.
func TestB3_ARunThatEndsEveryPluginIsGivenUp(t *testing.T) {
	t.Parallel()
	var streams atomic.Int64
	p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
		streams.Add(1)
		messages := []*berthv1.RunResponse{attachedAt(0, 0, 0), started()}
		if n == 0 {
			messages = messages[1:]
		}
		if err := send(stream, messages...); err != nil {
			return err
		}
		return broken()
	})
	_, err := newWorkspace(t, p).Run(t.Context(), command())
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || !plug.MayHaveExecuted {
		t.Error(err)
	}
	if n := streams.Load(); n < 3 || n > 20 {
		t.Errorf("%d streams", n)
	}
}

// TestATransientFaultBeforeTheStartIsToldAtOnce: an engine that does not answer
// was asked for nothing yet.
func TestATransientFaultBeforeTheStartIsToldAtOnce(t *testing.T) {
	fault := fmt.Errorf("the engine does not answer: %w", workspace.ErrTransient)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error { return send(stream, ended(fault, 0)) })
	began := time.Now()
	_, err := newWorkspace(t, p).Run(t.Context(), command())
	if !errors.Is(err, workspace.ErrTransient) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestC6_ACallerThatGivesUpWhileTheRunIsLookedForStopsIt(t *testing.T) {
	for name, found := range map[string]bool{"found in time": true, "found later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{}, 1)
			p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
				if n == 0 {
					if err := send(stream, started()); err != nil {
						return err
					}
					return broken()
				}
				cancel()
				if !found || n < 4 { // by then the host has heard it
					return lostSight()
				}
				if err := send(stream, attachedAt(0, 0, 0), started()); err != nil {
					return err
				}
				for {
					msg, err := stream.Recv()
					if err != nil {
						return err
					}
					if msg.GetStop() != nil {
						stopped <- struct{}{}
						return send(stream, ended(context.Canceled, 0))
					}
				}
			})
			p.stopRun = func(*berthv1.StopRunRequest) error {
				stopped <- struct{}{}
				return nil
			}
			began := time.Now()
			_, err := newWorkspace(t, p).Run(ctx, command())
			if !errors.Is(err, context.Canceled) || time.Since(began) > 8*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			select {
			case <-stopped:
			case <-time.After(30 * time.Second):
				t.Error("nobody stopped the command")
			}
		})
	}
}

// TestC5_ATimeoutPassesWhileTheRunIsLookedFor: the workspace keeps it, and so
// does the host.
func TestC5_ATimeoutPassesWhileTheRunIsLookedFor(t *testing.T) {
	t.Parallel()
	p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
		if n == 0 {
			if err := send(stream, started(), stdout(0, "part")); err != nil {
				return err
			}
		}
		return broken()
	})
	stopped := newGate(t)
	p.stopRun = func(*berthv1.StopRunRequest) error { stopped.open(); return nil }
	cmd := command()
	cmd.Timeout = 100 * time.Millisecond
	_, err := newWorkspace(t, p).Run(t.Context(), cmd)
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || string(timeout.Stdout) != "part" {
		t.Errorf("%v", err)
	}
	select {
	case <-stopped.ch:
	case <-time.After(30 * time.Second):
		t.Error("nobody stopped the command")
	}
}
