package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const someRun = "run-0123456789abcdef"

func openWorkspace(t testing.TB, p *raw) (*host.Host, workspace.Workspace) {
	t.Helper()
	h := newHost(t, p)
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	return h, ws
}

func TestListRunsTellsWhatCanBeAttached(t *testing.T) {
	p := durable(nil)
	p.listRuns = func(stream grpc.ServerStreamingServer[berthv1.ListRunsResponse]) error {
		return errors.Join(
			stream.Send(&berthv1.ListRunsResponse{RunId: "run-1", Detached: true, Started: wire.FromTime(time.Unix(7, 0)), Args: [][]byte{[]byte("a\xff"), []byte("b")}}),
			stream.Send(&berthv1.ListRunsResponse{RunId: "run-2", Ended: true, Script: []byte("x")}),
		)
	}
	var got []workspace.RunInfo
	for info, err := range newWorkspace(t, p).ListRuns(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info)
	}
	if len(got) != 2 || got[0].ID != "run-1" || !got[0].Detached || got[0].Ended || !got[0].Started.Equal(time.Unix(7, 0)) || !slices.Equal(got[0].Args, []string{"a\xff", "b"}) ||
		got[1].ID != "run-2" || got[1].Detached || !got[1].Ended || !got[1].Started.IsZero() || got[1].Script != "x" {
		t.Errorf("%+v", got)
	}
}

func TestListRunsRefusesNonsense(t *testing.T) {
	p := durable(nil)
	p.listRuns = func(stream grpc.ServerStreamingServer[berthv1.ListRunsResponse]) error {
		return stream.Send(&berthv1.ListRunsResponse{RunId: "../x"})
	}
	for _, err := range newWorkspace(t, p).ListRuns(t.Context()) {
		var plug *workspace.PluginError
		if !errors.As(err, &plug) {
			t.Errorf("%v", err)
		}
	}
}

func TestRunsAreNotFoundAgainWithoutTheFeature(t *testing.T) {
	p := runner(nil)
	p.features = []string{"commands"}
	ws := newWorkspace(t, p)
	for _, err := range ws.ListRuns(t.Context()) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("list: %v", err)
		}
	}
	if _, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("attach: %v", err)
	}
	if err := ws.StopRun(t.Context(), someRun); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("stop: %v", err)
	}
}

func TestRunsRefuseWhatIsInvalidBeforeAnythingStarts(t *testing.T) {
	p := durable(nil)
	ws := newWorkspace(t, p)
	_, badID := ws.AttachRun(t.Context(), "Run 1", workspace.AttachOptions{})
	_, badOffset := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{StderrOffset: -1})
	for what, err := range map[string]error{"attach an id": badID, "attach at an offset": badOffset, "stop": ws.StopRun(t.Context(), "")} {
		if !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestStopRun(t *testing.T) {
	p := durable(nil)
	p.stopRun = func(req *berthv1.StopRunRequest) error {
		if req.GetRunId() == someRun && string(req.GetWorkspace().GetIncarnation()) == "first" {
			return nil
		}
		return wire.ToStatus(fmt.Errorf("run %s: %w", req.GetRunId(), fs.ErrNotExist))
	}
	ws := newWorkspace(t, p)
	if err := ws.StopRun(t.Context(), someRun); err != nil {
		t.Error(err)
	}
	if err := ws.StopRun(t.Context(), "run-2"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "run-2") {
		t.Error(err)
	}
}

func TestAttachRunDeliversFromTheOffsetsOn(t *testing.T) {
	taken := make(chan *berthv1.RunTaken, 1)
	p := durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
		a := first.GetAttach()
		if a.GetRunId() != someRun || a.GetStdoutOffset() != int64(4+5*n) || a.GetStderrOffset() != 0 {
			t.Errorf("stream %d: %v", n, a)
		}
		if n == 0 {
			if err := send(stream, attachedAt(0, 0, 0), started(), stdout(4, "after")); err != nil {
				return err
			}
			return broken()
		}
		if err := send(stream, attachedAt(0, 0, 0), started(), stdout(9, "!"), stderr(0, "e"), exited(5, 10, 1)); err != nil {
			return err
		}
		taken <- acknowledged(t, stream)
		return nil
	})
	var out bytes.Buffer
	proc, err := newWorkspace(t, p).AttachRun(t.Context(), someRun, workspace.AttachOptions{Stdout: &out, StdoutOffset: 4})
	if err != nil {
		t.Fatal(err)
	}
	res, err := proc.Wait()
	if err != nil || proc.ID() != someRun || res.RunID != someRun || res.ExitCode != 5 || out.String() != "after!" || res.Stdout != nil || string(res.Stderr) != "e" {
		t.Errorf("%+v, %q, %v", res, out.String(), err)
	}
	if got := <-taken; got.GetStdoutOffset() != 10 || got.GetStderrOffset() != 1 {
		t.Errorf("taken %v", got)
	}
}

func TestAttachRunTellsOfARunThatIsNotThere(t *testing.T) {
	p := durable(func(int, *berthv1.RunRequest, runStream) error {
		return wire.ToStatus(fmt.Errorf("no such run: %w", fs.ErrNotExist))
	})
	if _, err := newWorkspace(t, p).AttachRun(t.Context(), someRun, workspace.AttachOptions{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), someRun) {
		t.Error(err)
	}
}

func TestAttachRunTellsAGap(t *testing.T) {
	serve := func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		if err := send(stream, attachedAt(100, 3, 0), started(), stdout(100, "rest"), stderr(3, "r"), exited(0, 104, 4)); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	ws := newWorkspace(t, durable(serve))
	_, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{StdoutOffset: 40, StderrOffset: 3})
	var gap *workspace.OutputGapError
	if !errors.As(err, &gap) || *gap != (workspace.OutputGapError{RunID: someRun, Stdout: 60, StdoutOffset: 100, StderrOffset: 3}) {
		t.Fatalf("%+v, %v", gap, err)
	}
	refused := errors.New("I want it all")
	if _, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{OnGap: func(*workspace.OutputGapError) error { return refused }}); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	var told *workspace.OutputGapError
	proc, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{OnGap: func(g *workspace.OutputGapError) error { told = g; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := proc.Wait(); err != nil || string(res.Stdout) != "rest" || string(res.Stderr) != "r" || told == nil || told.Stdout != 100 || told.Stderr != 3 {
		t.Errorf("%+v, %+v, %v", res, told, err)
	}
}

// follows is a run that goes on until its stream ends; it tells what came.
func follows(t testing.TB, seen chan<- *berthv1.RunRequest) *raw {
	return durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
		defer close(seen) // also if the host has gone before all is sent
		messages := []*berthv1.RunResponse{started(), stdout(0, "x")}
		if first.GetAttach() != nil {
			messages = append([]*berthv1.RunResponse{attachedAt(0, 0, 0)}, messages...)
		}
		if err := send(stream, messages...); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			seen <- msg
		}
	})
}

// wantLeftAlone: nothing that came would stop the command or take its outcome.
func wantLeftAlone(t testing.TB, seen <-chan *berthv1.RunRequest) {
	t.Helper()
	for msg := range seen {
		if msg.GetStop() != nil || msg.GetTaken().GetOutcome() {
			t.Errorf("the plugin was sent %v", msg)
		}
	}
}

func TestTheEndOfAFollowingLeavesTheRunAlone(t *testing.T) {
	writes := errors.New("disk full")
	for name, test := range map[string]struct {
		opts workspace.AttachOptions
		end  func(cancel context.CancelFunc, h *host.Host)
		want error
	}{
		"its context":          {end: func(cancel context.CancelFunc, _ *host.Host) { cancel() }, want: context.Canceled},
		"the host":             {end: func(_ context.CancelFunc, h *host.Host) { _ = h.Close() }, want: fs.ErrClosed},
		"a writer that failed": {opts: workspace.AttachOptions{Stdout: writerFunc(func([]byte) (int, error) { return 0, writes })}, end: func(context.CancelFunc, *host.Host) {}, want: writes},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan *berthv1.RunRequest, 16)
			p := follows(t, seen)
			p.stopRun = func(*berthv1.StopRunRequest) error { t.Error("the command was stopped"); return nil }
			h, ws := openWorkspace(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			proc, err := ws.AttachRun(ctx, someRun, test.opts)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			test.end(cancel, h)
			if _, err := proc.Wait(); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			wantLeftAlone(t, seen)
		})
	}
}

func TestCloseDoesNotStopADetachedCommand(t *testing.T) {
	seen := make(chan *berthv1.RunRequest, 16)
	h, ws := openWorkspace(t, follows(t, seen))
	cmd := command()
	cmd.Detached = true
	proc, err := ws.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
	if _, err := proc.Wait(); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), "goes on") {
		t.Error(err)
	}
	wantLeftAlone(t, seen)
}

func TestC6_ADetachedCommandIsStoppedByItsContext(t *testing.T) {
	stopped := newGate(t)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStop() != nil {
				stopped.open()
				return send(stream, ended(context.Canceled, 0))
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cmd := command()
	cmd.Detached = true
	proc, err := newWorkspace(t, p).Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := proc.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-stopped.ch
}

// TestAnOutcomeIsTakenWhenAllWasHandedOver: whoever comes after a host that died
// before that finds it.
func TestAnOutcomeIsTakenWhenAllWasHandedOver(t *testing.T) {
	reads, handed := newGate(t), make(chan bool, 1)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		if err := send(stream, attachedAt(0, 0, 0), started(), stdout(0, "x"), exited(0, 1, 0)); err != nil {
			return err
		}
		acknowledged(t, stream)
		select {
		case <-reads.ch:
			handed <- true
		default:
			handed <- false
		}
		return nil
	})
	proc, err := newWorkspace(t, p).AttachRun(t.Context(), someRun, workspace.AttachOptions{
		Stdout: writerFunc(func(b []byte) (int, error) {
			time.Sleep(100 * time.Millisecond) // a slow writer, and the outcome is there
			reads.open()
			return len(b), nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Error(err)
	}
	if !<-handed {
		t.Error("the outcome was taken before the output")
	}
}

// TestAnOutcomeThatNobodyAskedForIsKept: the program that started a command
// detached may end without having heard of its end.
func TestAnOutcomeThatNobodyAskedForIsKept(t *testing.T) {
	seen, over := make(chan *berthv1.RunRequest, 16), newGate(t)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		defer close(seen)
		if err := send(stream, started(), exited(0, 0, 0)); err != nil {
			return err
		}
		over.open()
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			seen <- msg
		}
	})
	h, ws := openWorkspace(t, p)
	cmd := command()
	cmd.Detached = true
	if _, err := ws.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	<-over.ch
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	wantLeftAlone(t, seen)
}

func TestAttachRunCollectsNoMoreThanItMay(t *testing.T) {
	big := strings.Repeat("x", wire.ChunkSize)
	p := durable(func(_ int, _ *berthv1.RunRequest, stream runStream) error {
		if err := send(stream, attachedAt(0, 0, 0), started()); err != nil {
			return err
		}
		for at := int64(0); ; at += int64(len(big)) {
			if err := send(stream, stdout(at, big)); err != nil {
				return err
			}
		}
	})
	ws := newWorkspace(t, p)
	proc, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(); err == nil || !strings.Contains(err.Error(), "to collect") {
		t.Error(err)
	}
}

func TestReadOnlyRefusesWhatChangesARun(t *testing.T) {
	p := durable(nil)
	p.listRuns = func(grpc.ServerStreamingServer[berthv1.ListRunsResponse]) error { return nil }
	ws := host.ReadOnly(newWorkspace(t, p))
	if _, err := ws.AttachRun(t.Context(), someRun, workspace.AttachOptions{Stdout: io.Discard}); !errors.Is(err, workspace.ErrReadOnly) {
		t.Error(err)
	}
	if err := ws.StopRun(t.Context(), someRun); !errors.Is(err, workspace.ErrReadOnly) {
		t.Error(err)
	}
	for _, err := range ws.ListRuns(t.Context()) {
		t.Error(err)
	}
}
