package host_test

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestAnAttachThatNobodyWaitsForIsGivenUp: a service that does not answer would hold
// up the host's end, and so whoever pressed Ctrl-C.
func TestAnAttachThatNobodyWaitsForIsGivenUp(t *testing.T) {
	var attached atomic.Int64
	asked, gaveUp := make(chan struct{}, 1), make(chan struct{})
	p := &raw{}
	p.attach = func(req *berthv1.AttachRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		if attached.Add(1) > 1 {
			return p.opened(req.GetWorkspace().GetId(), stream)
		}
		asked <- struct{}{}
		<-stream.Context().Done()
		close(gaveUp)
		return stream.Context().Err()
	}
	ws, err := newHost(t, p).Attach(workspace.Ref{Provider: "raw", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(ctx context.Context) chan error {
		left := make(chan error, 1)
		go func() { _, err := ws.WorkingDir(ctx); left <- err }()
		return left
	}
	first, cancelFirst := context.WithCancel(t.Context())
	second, cancelSecond := context.WithCancel(t.Context())
	defer cancelSecond()
	one := wait(first)
	<-asked
	two := wait(second)
	waitFor(t, "the second caller waits too", func() bool { return host.Waiting(ws) == 2 })
	cancelFirst()
	if err := <-one; !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller got %v", err)
	}
	cancelSecond()
	if err := <-two; !errors.Is(err, context.Canceled) {
		t.Errorf("the second caller got %v", err)
	}
	select {
	case <-gaveUp:
	case <-time.After(time.Minute):
		t.Fatal("the attach goes on, and nobody waits for it")
	}
	if dir, err := ws.WorkingDir(t.Context()); err != nil || dir != "/work" || attached.Load() != 2 {
		t.Errorf("the next operation: %q, %v, %d attaches", dir, err, attached.Load())
	}
}

// TestAnOutcomeThatStartHasToldIsTaken: a detached command that could not be started
// is not kept for somebody to ask for it.
func TestAnOutcomeThatStartHasToldIsTaken(t *testing.T) {
	taken := make(chan *berthv1.RunTaken, 1)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		if err := send(stream, ended(fs.ErrNotExist, 0)); err != nil {
			return err
		}
		taken <- acknowledged(t, stream)
		return nil
	})
	cmd := command()
	cmd.Detached = true
	if _, err := newWorkspace(t, p).Start(t.Context(), cmd); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("started: %v", err)
	}
	select {
	case <-taken:
	case <-time.After(time.Minute):
		t.Error("the outcome was told, and is not taken")
	}
}
