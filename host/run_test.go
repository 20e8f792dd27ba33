package host_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

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
