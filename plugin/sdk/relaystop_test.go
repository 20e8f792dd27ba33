package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// silent is a guest that starts a command and says no more; it tells what ends it.
func silent(ended chan<- error) func(runStream) error {
	return func(stream runStream) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(startedMessage()); err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return err
			}
			if m.GetStop() != nil {
				ended <- nil
				return stream.Send(&berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{
					Result: &berthv1.RunOutcome_Error{Error: wire.ToDetail(context.Canceled)},
				}}})
			}
		}
	}
}

func TestRelayedRunEndsWithItsHost(t *testing.T) {
	ended := make(chan error, 1)
	ws, client := scripted(t, &scriptedGuest{run: silent(ended)})
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	call.send(stopMessage())
	_, err := call.wait()
	mustBe(t, err, context.Canceled)
	if err := <-ended; err != nil {
		t.Errorf("the guest saw %v instead of the stop", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	call = startRun(t, ctx, client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	cancel()
	if err := <-ended; err == nil {
		t.Error("the guest's stream did not break")
	}
	ws.checkReleased(t)
}

func TestL7_DestroyEndsRelayedRuns(t *testing.T) {
	ended := make(chan error, 1)
	ws, client := scripted(t, &scriptedGuest{run: silent(ended)})
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	if _, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "ws"}); err != nil {
		t.Fatal(err)
	}
	_, err := call.wait()
	mustBe(t, err, workspace.ErrUnavailable)
	<-ended
	ws.checkReleased(t)
}

func TestL7_WatcherEndsRelayedRuns(t *testing.T) {
	ended := make(chan error, 1)
	ws, client := scripted(t, &scriptedGuest{run: silent(ended)})
	gone := make(chan struct{})
	ws.watch = func(ctx context.Context) error {
		select {
		case <-gone:
			return fmt.Errorf("killed for its memory: %w", workspace.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	close(gone)
	_, err := call.wait()
	mustBe(t, err, workspace.ErrUnavailable)
	if !strings.Contains(err.Error(), "killed for its memory") {
		t.Errorf("error %v", err)
	}
	<-ended
	ws.checkReleased(t)
}

// A plugin that ends leaves its guests' runs going, and says so: the next one may
// attach to them.
func TestB3_PluginThatEndsLetsRelayedRunsGoOn(t *testing.T) {
	ended := make(chan error, 1)
	ws, _ := scripted(t, &scriptedGuest{run: silent(ended)})
	s := newServer(pluginOf(providing(ws)).definition(), hclogNull(), &redactor{})
	client := connectServer(t, s)
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	s.close()
	_, err := waitStatus(call)
	mustBe(t, err, workspace.ErrTransient)
	if call.outcome != nil {
		t.Error("it has an outcome")
	}
	if err := <-ended; err == nil {
		t.Error("the guest was told to stop it")
	}
}

// The time that it takes to reach the guest counts, and a guest that keeps silent
// delays nobody.
func TestC5_TimeoutOfRelayedRuns(t *testing.T) {
	t.Parallel()
	left := make(chan *berthv1.RunStart, 1)
	guest := &scriptedGuest{run: func(stream runStream) error {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		left <- m.GetStart()
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	ws, client := scripted(t, guest)
	ws.connect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	_, err := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(50 * time.Millisecond), FullTimeoutNs: int64(time.Hour)}).wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || timeout.Timeout != time.Hour {
		t.Errorf("error %#v", err)
	}
	ws.connect = nil
	full := int64(100 * time.Millisecond)
	begin := time.Now()
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: full, FullTimeoutNs: full}).wait()
	if !errors.As(err, &timeout) || !strings.Contains(timeout.Survivors, "the guest in workspace ws has not told its end") {
		t.Errorf("error %#v", err)
	}
	if start := <-left; start.GetTimeoutNs() <= 0 || start.GetTimeoutNs() >= full || start.GetFullTimeoutNs() != full {
		t.Errorf("start %v", start)
	}
	if took := time.Since(begin); took > testTimeout/2 {
		t.Errorf("it took %v", took)
	}
}

// A host that gives a run up is heard while its workspace is still being attached,
// and what it sent by then is not lost.
func TestC6_StopWhileTheWorkspaceIsAttached(t *testing.T) {
	process := newFakeProcess()
	release, attaching := make(chan struct{}), atomic.Int64{}
	provider := providing(starting(process))
	plain := provider.attach
	provider.attach = func(ctx context.Context, id string) (Workspace, error) {
		attaching.Add(1)
		select {
		case <-release:
			return plain(ctx, id)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	client := serveProvider(t, provider)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	eventually(t, "it attaches", func() bool { return attaching.Load() == 1 })
	call.send(stopMessage())
	_, err := call.wait()
	mustBe(t, err, context.Canceled)

	call = startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
	eventually(t, "it attaches again", func() bool { return attaching.Load() == 2 })
	const pieces = 2 * maxEarly
	for i := range int64(pieces) {
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Offset: i, Data: []byte{byte(i)}}}})
	}
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: pieces}}})
	close(release)
	for i := range pieces {
		var b [1]byte
		if _, err := process.stdinR.Read(b[:]); err != nil || b[0] != byte(i) {
			t.Fatalf("byte %d is %d, %v", i, b[0], err)
		}
	}
	process.exit(0, nil)
	if code, err := call.wait(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}
