package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func startedBy(registry string) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Started{Started: &berthv1.RunStarted{RunRegistry: []byte(registry)}}}
}

// openedBy is a plugin's answer to Create that tells a registry.
func openedBy(registry string) func(*berthv1.CreateRequest, grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	return func(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		return stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: &berthv1.Opened{
			Id: req.GetToken(), WorkingDir: []byte("/work"), Features: []string{"commands", "attach-run"}, RunRegistry: []byte(registry),
		}}})
	}
}

// TestB3_ARepeatedStartTellsWhoWasKnownBefore it was sent first: the last one that was
// told by then, and none that was told since.
func TestB3_ARepeatedStartTellsWhoWasKnownBefore(t *testing.T) {
	unknown := wire.ToStatus(fmt.Errorf("run: %w", fs.ErrNotExist))
	var next, repeated atomic.Value // what the next run that is started tells, and what was told last with a repeated start
	next.Store("")
	// The command "lost" is lost on its way, when it is told to.
	losing, goOn := make(chan struct{}, 1), make(chan struct{}, 1)
	p := &raw{features: []string{"commands", "attach-run"}, create: openedBy("the guest that was opened")}
	p.run = func(stream runStream) error {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		start := msg.GetStart()
		switch {
		case start.GetRepeatedAfterNs() > 0:
			repeated.Store(string(start.GetRunRegistry()))
		case start.GetRunRegistry() != nil:
			t.Errorf("a first start tells %q", start.GetRunRegistry())
		case string(start.GetArgs()[0]) == "lost":
			losing <- struct{}{}
			<-goOn
			return broken()
		}
		if err := send(stream, startedBy(next.Load().(string)), exited(0, 0, 0)); err != nil {
			return err
		}
		acknowledged(t, stream)
		return nil
	}
	p.attachRun = func(runStream) error { return unknown }
	ws := newWorkspace(t, p)
	run := func(program string) {
		t.Helper()
		if _, err := ws.Run(t.Context(), workspace.Command{Args: []string{program}}); err != nil {
			t.Errorf("%s: %v", program, err)
		}
	}
	lose := func(meanwhile func(), want string) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			run("lost")
		}()
		<-losing
		meanwhile()
		goOn <- struct{}{}
		<-done
		if got := repeated.Load(); got != want {
			t.Errorf("a repeated start tells %q, want %q", got, want)
		}
	}
	lose(func() {}, "the guest that was opened")
	// One that does not say proves nothing about the one that did.
	run("any")
	lose(func() {}, "the guest that was opened")
	// The guest was started again, and the host hears of it while one is under way.
	lose(func() {
		next.Store("the guest after it")
		run("any")
	}, "the guest that was opened")
	lose(func() {}, "the guest after it")
}

// TestARegistryOfAnyLengthIsNotKept: it goes with later calls.
func TestARegistryOfAnyLengthIsNotKept(t *testing.T) {
	long := strings.Repeat("x", wire.MaxRunRegistry+1)
	for name, p := range map[string]*raw{
		"opened": {create: openedBy(long)},
		"started": durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
			return send(stream, startedBy(long), exited(0, 0, 0))
		}),
	} {
		p.stopRun = func(*berthv1.StopRunRequest) error { return nil }
		_, err := newWorkspace(t, p).Run(t.Context(), command())
		var plug *workspace.PluginError
		if !errors.As(err, &plug) || !strings.Contains(plug.Reason, "65 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
