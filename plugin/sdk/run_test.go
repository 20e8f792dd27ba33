package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

var runCounter atomic.Int64

// runCall is the host's side of a run.
type runCall struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[berthv1.RunRequest, berthv1.RunResponse]
	// What came in so far.
	started    bool
	registry   []byte // that started it
	out        [2][]byte
	stdinTaken int64
	stdinOver  bool
	signals    map[int64]error
	outcome    *berthv1.RunOutcome
	// take says whether output is taken as it comes.
	take bool
	// attached says that the run was attached, and held what the first answer was.
	attached bool
	held     *berthv1.RunAttached
}

func startRun(t testing.TB, ctx context.Context, client berthv1.ProviderClient, start *berthv1.RunStart) *runCall {
	t.Helper()
	if start.Workspace == nil {
		start.Workspace = key("ws")
	}
	if start.RunId == "" {
		start.RunId = fmt.Sprintf("run-%d", runCounter.Add(1))
	}
	if start.Args == nil && start.Script == nil {
		start.Args = [][]byte{[]byte("command")}
	}
	stream, err := client.Run(ctx)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	c := &runCall{t: t, stream: stream, signals: map[int64]error{}, take: true}
	c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: start}})
	return c
}

func (c *runCall) send(m *berthv1.RunRequest) {
	c.t.Helper()
	if err := c.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatalf("run: sending %v: %v", m, err)
	}
}

// recv takes one message in and reports whether there may be more.
func (c *runCall) recv() error {
	m, err := c.stream.Recv()
	if err != nil {
		return err
	}
	if c.outcome != nil {
		c.t.Errorf("%v came after the outcome", m)
	}
	if c.attached && c.held == nil && m.GetAttached() == nil {
		c.t.Errorf("%v came before attached", m)
	}
	switch m := m.GetMessage().(type) {
	case *berthv1.RunResponse_Attached:
		if !c.attached || c.held != nil {
			c.t.Errorf("unexpected message %v", m)
		}
		c.held = m.Attached
	case *berthv1.RunResponse_Started:
		if c.started {
			c.t.Error("started twice")
		}
		c.started, c.registry = true, m.Started.GetRunRegistry()
	case *berthv1.RunResponse_Stdout:
		c.output(stdout, m.Stdout)
	case *berthv1.RunResponse_Stderr:
		c.output(stderr, m.Stderr)
	case *berthv1.RunResponse_StdinTaken:
		if m.StdinTaken.GetOffset() < c.stdinTaken {
			c.t.Errorf("stdin taken went from %d back to %d", c.stdinTaken, m.StdinTaken.GetOffset())
		}
		c.stdinTaken, c.stdinOver = m.StdinTaken.GetOffset(), m.StdinTaken.GetClosed()
	case *berthv1.RunResponse_SignalResult:
		var err error
		if detail := m.SignalResult.GetError(); detail != nil {
			err = wire.FromDetail(detail)
		}
		c.signals[m.SignalResult.GetSequence()] = err
	case *berthv1.RunResponse_Outcome:
		c.outcome = m.Outcome
	default:
		c.t.Errorf("unexpected message %v", m)
	}
	return nil
}

func (c *runCall) output(which int, m *berthv1.RunOutput) {
	if !c.started {
		c.t.Error("output before started")
	}
	if m.GetOffset() != int64(len(c.out[which])) {
		c.t.Errorf("%s at offset %d, want %d", outputNames[which], m.GetOffset(), len(c.out[which]))
	}
	if len(m.GetData()) > wire.ChunkSize {
		c.t.Errorf("a chunk of %d bytes", len(m.GetData()))
	}
	c.out[which] = append(c.out[which], m.GetData()...)
	if c.take {
		c.taken()
	}
}

func (c *runCall) taken() {
	c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{
		StdoutOffset: int64(len(c.out[stdout])), StderrOffset: int64(len(c.out[stderr])),
	}}})
}

// until receives until is holds.
func (c *runCall) until(what string, is func() bool) {
	c.t.Helper()
	for !is() {
		if err := c.recv(); err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// wait receives up to the outcome and the end of the stream.
func (c *runCall) wait() (code int, err error) {
	c.t.Helper()
	c.until("the outcome", func() bool { return c.outcome != nil })
	if err := c.recv(); !errors.Is(err, io.EOF) {
		c.t.Errorf("after the outcome: %v, want the stream's end", err)
	}
	if c.outcome.GetStdoutEnd() != int64(len(c.out[stdout])) || c.outcome.GetStderrEnd() != int64(len(c.out[stderr])) {
		c.t.Errorf("ends %d and %d, received %d and %d", c.outcome.GetStdoutEnd(), c.outcome.GetStderrEnd(), len(c.out[stdout]), len(c.out[stderr]))
	}
	switch result := c.outcome.GetResult().(type) {
	case *berthv1.RunOutcome_Exited:
		return int(result.Exited.GetCode()), nil
	case *berthv1.RunOutcome_Error:
		return -1, wire.FromDetail(result.Error)
	}
	c.t.Fatalf("an outcome without a result: %v", c.outcome)
	return 0, nil
}

func TestRunDeliversOutputAndExitCode(t *testing.T) {
	process := newFakeProcess()
	var seen Command
	client := serveConfigured(t, providing(starting(process, &seen)), `{"env":{"A":"configured","B":"configured"}}`)
	go func() {
		_, _ = io.WriteString(process.stdoutW, "to stdout")
		_, _ = io.WriteString(process.stderrW, "to \xff stderr")
		process.exit(7, nil)
	}()
	call := startRun(t, t.Context(), client, &berthv1.RunStart{
		RunId: "the-run", Script: []byte("exit 7"), Dir: []byte("a/../b"),
		Env: []*berthv1.EnvVar{{Name: []byte("B"), Value: []byte("first")}, {Name: []byte("B"), Value: []byte("call")}},
	})
	code, err := call.wait()
	if code != 7 || err != nil {
		t.Fatalf("exit code %d, error %v", code, err)
	}
	if string(call.out[stdout]) != "to stdout" || string(call.out[stderr]) != "to \xff stderr" {
		t.Errorf("output %q", call.out)
	}
	if got := fmt.Sprint(seen.Args); got != "[/bin/sh -c exit 7]" {
		t.Errorf("args %s", got)
	}
	if seen.Dir != "/work/a/../b" || seen.RunID != "the-run" || seen.Stdin {
		t.Errorf("command %+v", seen)
	}
	if seen.Env["A"] != "configured" || seen.Env["B"] != "call" || len(seen.Env) != 2 {
		t.Errorf("environment %v", seen.Env)
	}
	eventually(t, "close", func() bool { process.mu.Lock(); defer process.mu.Unlock(); return process.closed == 1 })
	if stops := process.stopped(); len(stops) > 0 {
		t.Errorf("a command that ended by itself was stopped: %v", stops)
	}
}
