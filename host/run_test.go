package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

type runStream = grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]

func send(stream runStream, messages ...*berthv1.RunResponse) error {
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func started() *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Started{Started: &berthv1.RunStarted{}}}
}

func stdout(offset int64, data string) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stdout{Stdout: &berthv1.RunOutput{Offset: offset, Data: []byte(data)}}}
}

func stderr(offset int64, data string) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stderr{Stderr: &berthv1.RunOutput{Offset: offset, Data: []byte(data)}}}
}

func exited(code int32, stdoutEnd, stderrEnd int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{
		Result: &berthv1.RunOutcome_Exited{Exited: &berthv1.Exited{Code: code}}, StdoutEnd: stdoutEnd, StderrEnd: stderrEnd,
	}}}
}

func ended(err error, stdoutEnd int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{
		Result: &berthv1.RunOutcome_Error{Error: wire.ToDetail(err)}, StdoutEnd: stdoutEnd,
	}}}
}

// runner is a plugin whose commands are f, after their start was received.
func runner(f func(start *berthv1.RunStart, stream runStream) error) *raw {
	return &raw{run: func(stream runStream) error {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		return f(msg.GetStart(), stream)
	}}
}

func command() workspace.Command { return workspace.Command{Args: []string{"x"}} }

func TestRunReturnsWhatTheCommandLeft(t *testing.T) {
	ws := newWorkspace(t, runner(func(start *berthv1.RunStart, stream runStream) error {
		if start.GetRunId() == "" || string(start.GetArgs()[1]) != "a\xffb" || string(start.GetDir()) != "sub" || start.GetStdin() || start.GetOutputLimit() != workspace.DefaultOutputLimit {
			t.Errorf("start %v", start)
		}
		if env := wire.ToEnv(start.GetEnv()); env["A"] != "\xfe" || len(env) != 1 {
			t.Errorf("env %q", env)
		}
		return send(stream, started(), stdout(0, "out\xff"), stderr(0, "err"), stdout(4, "!"), exited(3, 5, 3))
	}))
	res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"x", "a\xffb"}, Dir: "sub", Env: map[string]string{"A": "\xfe"}})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 3 || string(res.Stdout) != "out\xff!" || string(res.Stderr) != "err" || res.RunID == "" {
		t.Errorf("%+v", res)
	}
}

func TestHandleEnvGoesWithEachCommandBeforeItsOwn(t *testing.T) {
	p := runner(func(start *berthv1.RunStart, stream runStream) error {
		env := wire.ToEnv(start.GetEnv())
		out := env["A"] + env["B"]
		return send(stream, started(), stdout(0, out), exited(0, int64(len(out)), 0))
	})
	p.schema = `{"type":"object","properties":{"env":{"type":"object","additionalProperties":{"type":"string"},"x-berth-per-workspace":true}}}`
	p.create = func(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
		if len(req.GetOverrides()) != 0 {
			t.Errorf("env went into the create: %s", req.GetOverrides())
		}
		return p.opened(req.GetToken(), stream)
	}
	h := newHost(t, p)
	config := workspace.WithConfig(map[string]any{"env": map[string]string{"A": "a", "B": "b"}})
	ws, err := h.Workspace("raw", config)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command()
	cmd.Env = map[string]string{"B": "c"}
	if res, err := ws.Run(t.Context(), cmd); err != nil || string(res.Stdout) != "ac" {
		t.Errorf("%+v, %v", res, err)
	}
	ref, _ := ws.Ref()
	again, err := h.Attach(ref, config)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := again.Run(t.Context(), command()); err != nil || string(res.Stdout) != "ab" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestStartTellsWhatWasRefused(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		return send(stream, ended(fmt.Errorf("E: %w", workspace.ErrInvalid), 0))
	}))
	if _, err := ws.Start(t.Context(), command()); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
}

// TestRunTakesNothingFromAPluginOnTrust: whatever a plugin may not send fails
// that run, with a typed error, and nothing else.
func TestRunTakesNothingFromAPluginOnTrust(t *testing.T) {
	big := strings.Repeat("x", wire.ChunkSize)
	for name, test := range map[string]struct {
		send []*berthv1.RunResponse
		want string
	}{
		"nothing":                   {nil, "without its outcome"},
		"no outcome":                {[]*berthv1.RunResponse{started(), stdout(0, "x")}, "without its outcome"},
		"an empty message":          {[]*berthv1.RunResponse{{}}, "no known kind"},
		"started twice":             {[]*berthv1.RunResponse{started(), started()}, "twice"},
		"a gap":                     {[]*berthv1.RunResponse{started(), stdout(1, "x")}, "stdout is incomplete"},
		"a repetition":              {[]*berthv1.RunResponse{started(), stdout(0, "xy"), stdout(1, "y")}, "stdout is incomplete"},
		"fewer bytes than said":     {[]*berthv1.RunResponse{started(), stdout(0, "x"), exited(0, 2, 0)}, "1 bytes arrived of 2"},
		"more bytes than said":      {[]*berthv1.RunResponse{started(), stderr(0, "x"), exited(0, 0, 0)}, "stderr is incomplete"},
		"an outcome without result": {[]*berthv1.RunResponse{started(), {Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{}}}}, "without a result"},
		"a negative exit code":      {[]*berthv1.RunResponse{started(), exited(-1, 0, 0)}, "exit code -1"},
		"stdin that nobody sent":    {[]*berthv1.RunResponse{started(), {Message: &berthv1.RunResponse_StdinTaken{StdinTaken: &berthv1.RunStdinTaken{Offset: 5}}}}, "stdin"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error { return send(stream, test.send...) }))
			_, err := ws.Run(t.Context(), command())
			var plug *workspace.PluginError
			if !errors.As(err, &plug) || !strings.Contains(plug.Reason, test.want) || !plug.MayHaveExecuted || plug.RunID == "" {
				t.Errorf("%v: want %q", err, test.want)
			}
			if _, err := ws.Stat(t.Context(), "f"); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
	t.Run("more than the window", func(t *testing.T) {
		ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
			if err := send(stream, started()); err != nil {
				return err
			}
			for offset := int64(0); ; offset += int64(len(big)) {
				if err := send(stream, stdout(offset, big)); err != nil {
					return err
				}
			}
		}))
		blocked := newGate(t)
		cmd := command()
		cmd.Stdout, cmd.Stderr, cmd.OutputLimit = writerFunc(func(p []byte) (int, error) { <-blocked.ch; return len(p), nil }), io.Discard, workspace.NoOutputLimit
		_, err := ws.Run(t.Context(), cmd)
		var plug *workspace.PluginError
		if !errors.As(err, &plug) || !strings.Contains(plug.Reason, "not taken") {
			t.Error(err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRunKeepsTheBeginningsOfAStoppedCommand(t *testing.T) {
	long := strings.Repeat("y", workspace.PartialOutput+100)
	ws := newWorkspace(t, runner(func(start *berthv1.RunStart, stream runStream) error {
		if left := time.Duration(start.GetTimeoutNs()); left <= 0 || left > time.Hour || start.GetFullTimeoutNs() != int64(time.Hour) {
			t.Errorf("timeout %v of %v", left, time.Duration(start.GetFullTimeoutNs()))
		}
		return send(stream, started(), stdout(0, long), stderr(0, "e"),
			ended(&workspace.TimeoutError{Timeout: time.Hour, Survivors: "pid 7"}, int64(len(long))))
	}))
	for name, out := range map[string]io.Writer{"collected": nil, "streamed": io.Discard} {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.Timeout, cmd.Stdout = time.Hour, out
			_, err := ws.Run(t.Context(), cmd)
			var timeout *workspace.TimeoutError
			if !errors.As(err, &timeout) || string(timeout.Stdout) != long[:workspace.PartialOutput] || string(timeout.Stderr) != "e" || timeout.Survivors != "pid 7" {
				t.Errorf("%.200v", err)
			}
		})
	}
}

func TestC5_ATimeoutFiresEvenIfThePluginKeepsSilent(t *testing.T) {
	p := runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "begun")); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	})
	ws := newWorkspace(t, p)
	cmd := command()
	cmd.Timeout = 50 * time.Millisecond
	_, err := ws.Run(t.Context(), cmd)
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !strings.Contains(timeout.Survivors, "did not confirm") || string(timeout.Stdout) != "begun" {
		t.Error(err)
	}
}

func TestC6_ACancelledCallerGetsItsContextsErrorAndTheCommandIsStopped(t *testing.T) {
	stopped := make(chan struct{}, 1)
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if stream.Context().Err() != nil {
			t.Error("the stream has the caller's context")
		}
		if err := send(stream, started()); err != nil {
			return err
		}
		msg, err := stream.Recv()
		if err != nil || msg.GetStop() == nil {
			t.Errorf("instead of a stop: %v, %v", msg, err)
		}
		stopped <- struct{}{}
		return send(stream, ended(fmt.Errorf("stopped: %w", context.Canceled), 0))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ws.Start(ctx, command())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-stopped
	if _, again := p.Wait(); !errors.Is(again, context.Canceled) {
		t.Errorf("a second wait: %v", again)
	}
}

func TestC6_ACancelledCallerDoesNotWaitForASilentPlugin(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ws.Start(ctx, command())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	cancel()
	_, err = p.Wait()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not confirm") {
		t.Error(err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestC7_TheHostItselfKeepsTheOutputLimit(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "12345"), stderr(0, "abcdef")); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStop() != nil {
				return send(stream, exited(0, 5, 6))
			}
		}
	}))
	cmd := command()
	cmd.OutputLimit = 8
	_, err := ws.Run(t.Context(), cmd)
	var limit *workspace.OutputLimitError
	if !errors.As(err, &limit) || limit.Limit != 8 || string(limit.Stdout) != "12345" || string(limit.Stderr) != "abc" {
		t.Errorf("%v: %q %q", err, limit.Stdout, limit.Stderr)
	}
}

// TestC5_WhatWasNotStoppedIsTold also when the host itself asked for the stop.
func TestC5_WhatWasNotStoppedIsTold(t *testing.T) {
	const left = "pid 9 of another user, in a sentence that is far longer than what is repeated of a mere name"
	for name, test := range map[string]struct {
		word error
		want func(*workspace.OutputLimitError) bool
	}{
		"the plugin found it too": {&workspace.OutputLimitError{Limit: 8, Survivors: left}, func(e *workspace.OutputLimitError) bool { return e.Survivors == left }},
		"only the host did":       {fmt.Errorf("command stopped: %w; not stopped: %s", context.Canceled, left), func(*workspace.OutputLimitError) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
				if err := send(stream, started(), stdout(0, "0123456789")); err != nil {
					return err
				}
				for {
					msg, err := stream.Recv()
					if err != nil {
						return err
					}
					if msg.GetStop() != nil {
						return send(stream, ended(test.word, 10))
					}
				}
			}))
			cmd := command()
			cmd.OutputLimit = 8
			_, err := ws.Run(t.Context(), cmd)
			var limit *workspace.OutputLimitError
			if !errors.As(err, &limit) || !test.want(limit) || string(limit.Stdout) != "01234567" || !strings.Contains(err.Error(), left) || errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, errors.New("the writer is full") })
			if _, err = ws.Run(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), left) {
				t.Errorf("a writer that failed: %v", err)
			}
		})
	}
}

// pattern writes total bytes to stdout in odd pieces, byte i being i%251, and
// keeps to the window; sent counts them. A stop ends it.
func pattern(total int64, sent *atomic.Int64) func(*berthv1.RunStart, runStream) error {
	return func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		taken, stop := make(chan int64, 1000), make(chan struct{})
		go func() {
			defer close(stop)
			for {
				msg, err := stream.Recv()
				if err != nil || msg.GetStop() != nil {
					return
				}
				if m := msg.GetTaken(); m != nil {
					taken <- m.GetStdoutOffset()
				}
			}
		}()
		buf := make([]byte, 99_999)
		have := int64(0)
		for offset := int64(0); offset < total; sent.Store(offset) {
			n := min(int64(len(buf)), total-offset)
			for offset+n-have > wire.RunWindow {
				select {
				case have = <-taken:
				case <-stop:
					return send(stream, ended(context.Canceled, offset))
				}
			}
			for i := range n {
				buf[i] = byte((offset + i) % 251)
			}
			if err := send(stream, stdout(offset, string(buf[:n]))); err != nil {
				return err
			}
			offset += n
		}
		return send(stream, exited(0, total, 0))
	}
}

// TestC10_AWriterThatBlocksHoldsBackItsOwnCommandAlone: the plugin stops at its
// window, other calls go on, and a cancelled wait returns.
func TestC10_AWriterThatBlocksHoldsBackItsOwnCommandAlone(t *testing.T) {
	var sent, received atomic.Int64
	ws := newWorkspace(t, runner(pattern(64<<20, &sent)))
	release := newGate(t)
	cmd := command()
	cmd.Stdout = writerFunc(func(b []byte) (int, error) {
		if received.Add(int64(len(b))) > 4*wire.RunWindow { // the first ones are taken, then it blocks
			<-release.ch
		}
		return len(b), nil
	})
	cmd.Stderr, cmd.OutputLimit = io.Discard, workspace.NoOutputLimit
	ctx, cancel := context.WithCancel(t.Context())
	proc, err := ws.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the window to be full", func() bool { return sent.Load() >= 5*wire.RunWindow-4*wire.ChunkSize })
	for range 20 {
		if _, err := ws.Stat(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
	}
	if n := sent.Load(); n > 6*wire.RunWindow {
		t.Errorf("%d bytes sent", n)
	}
	cancel()
	if _, err := proc.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestC4_ASlowWriterGetsEveryByteInOrder(t *testing.T) {
	const total = 5<<20 + 77
	var sent atomic.Int64
	ws := newWorkspace(t, runner(pattern(total, &sent)))
	var got bytes.Buffer
	cmd := command()
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		time.Sleep(time.Millisecond) // slow is the point
		return got.Write(p)
	})
	if _, err := ws.Run(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	if got.Len() != total {
		t.Fatalf("%d bytes", got.Len())
	}
	for i, b := range got.Bytes() {
		if b != byte(i%251) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestAWriterThatBlocksForEverDoesNotHoldBackTheTimeout(t *testing.T) {
	blocked := newGate(t)
	for name, last := range map[string]*berthv1.RunResponse{
		"stopped by the plugin": ended(&workspace.TimeoutError{Timeout: 300 * time.Millisecond}, 1),
		"over before":           exited(0, 1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
				return send(stream, started(), stdout(0, "x"), last)
			}))
			cmd := command()
			cmd.Timeout = 300 * time.Millisecond
			cmd.Stdout = writerFunc(func(p []byte) (int, error) { <-blocked.ch; return len(p), nil })
			_, err := ws.Run(t.Context(), cmd)
			var timeout *workspace.TimeoutError
			if !errors.As(err, &timeout) || string(timeout.Stdout) != "x" {
				t.Error(err)
			}
		})
	}
}

func TestAWriterThatFailsStopsTheCommand(t *testing.T) {
	failure := errors.New("disk full")
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "x")); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStop() != nil {
				return send(stream, exited(143, 1, 0))
			}
		}
	}))
	cmd := command()
	cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, failure })
	if _, err := ws.Run(t.Context(), cmd); !errors.Is(err, failure) || !strings.Contains(err.Error(), "writing stdout") {
		t.Error(err)
	}
}

func TestStdoutAndStderrMayBeOneWriter(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		return send(stream, started(), stdout(0, "aaa"), stderr(0, "bbb"), exited(0, 3, 3))
	}))
	var out bytes.Buffer
	cmd := command()
	cmd.Stdout, cmd.Stderr = &out, &out
	if _, err := ws.Run(t.Context(), cmd); err != nil || out.Len() != 6 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestSignal(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			signal := msg.GetSignal()
			if signal == nil {
				continue
			}
			result := &berthv1.RunSignalResult{Sequence: signal.GetSequence()}
			if signal.GetName() == "WINCH" {
				result.Error = wire.ToDetail(errors.ErrUnsupported)
			}
			if err := send(stream, &berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: result}}); err != nil {
				return err
			}
			if signal.GetName() == "TERM" {
				return send(stream, exited(143, 0, 0))
			}
		}
	}))
	p, err := ws.Start(t.Context(), command())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), "WINCH"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if err := p.Signal(t.Context(), "SIGTERM\n"); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
	if err := p.Signal(t.Context(), workspace.SignalTerminate); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err != nil || res.ExitCode != 143 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := p.Signal(t.Context(), workspace.SignalTerminate); !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

func TestDetachedNeedsAProviderThatFindsRunsAgain(t *testing.T) {
	ws := newWorkspace(t, runner(echo))
	cmd := command()
	cmd.Detached = true
	if _, err := ws.Run(t.Context(), cmd); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestC10_ManyRunsAtOnce(t *testing.T) {
	ws := newWorkspace(t, runner(echo))
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			cmd := command()
			input := strings.Repeat(strconv.Itoa(i), 1000)
			cmd.Stdin = strings.NewReader(input)
			if res, err := ws.Run(t.Context(), cmd); err != nil || string(res.Stdout) != input {
				t.Errorf("run %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}
