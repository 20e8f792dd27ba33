package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

var runCounter atomic.Int64

// runCall is the host's side of a run.
type runCall struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[berthv1.RunRequest, berthv1.RunResponse]
	// What came in so far.
	started    bool
	out        [2][]byte
	stdinTaken int64
	stdinOver  bool
	signals    map[int64]error
	outcome    *berthv1.RunOutcome
	// take says whether output is taken as it comes.
	take bool
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
	switch m := m.GetMessage().(type) {
	case *berthv1.RunResponse_Started:
		if c.started {
			c.t.Error("started twice")
		}
		c.started = true
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

func stdinMessage(offset int64, data string) *berthv1.RunRequest {
	return &berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Offset: offset, Data: []byte(data)}}}
}

func stdinEnd(offset int64) *berthv1.RunRequest {
	return &berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: offset}}}
}

func TestStdin(t *testing.T) {
	process := newFakeProcess()
	var seen Command
	client := serveProvider(t, providing(starting(process, &seen)))
	got := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(process.stdinR)
		got <- string(data)
		process.exit(0, nil)
	}()
	call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
	for _, m := range []*berthv1.RunRequest{
		stdinMessage(0, "hello "),
		stdinMessage(0, "hello "),     // sent again
		stdinMessage(3, "lo world"),   // half of it again
		stdinMessage(11, ""),          // nothing
		stdinMessage(11, "\x00\xff."), // any bytes
		stdinEnd(14),
		stdinEnd(14), // again
	} {
		call.send(m)
	}
	code, err := call.wait()
	if code != 0 || err != nil || call.stdinTaken != 14 || call.stdinOver || !seen.Stdin {
		t.Errorf("code %d, error %v, taken %d, closed %v, asked for stdin: %v", code, err, call.stdinTaken, call.stdinOver, seen.Stdin)
	}
	if text := <-got; text != "hello world\x00\xff." {
		t.Errorf("the command read %q", text)
	}
}

func TestStdinIsFedAsItIsTaken(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
	want := make([]byte, 3*wire.RunWindow+12345)
	_, _ = pattern{}.Read(want)
	got := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(process.stdinR)
		got <- data
		process.exit(0, nil)
	}()
	for sent := 0; sent < len(want); {
		n := min(wire.ChunkSize, len(want)-sent)
		call.until("room for stdin", func() bool { return int64(sent+n)-call.stdinTaken <= wire.RunWindow })
		call.send(stdinMessage(int64(sent), string(want[sent:sent+n])))
		sent += n
	}
	call.send(stdinEnd(int64(len(want))))
	if code, err := call.wait(); code != 0 || err != nil || call.stdinTaken != int64(len(want)) {
		t.Errorf("code %d, error %v, taken %d", code, err, call.stdinTaken)
	}
	if data := <-got; string(data) != string(want) {
		t.Errorf("the command read %d bytes, not the %d sent", len(data), len(want))
	}
}

func TestStdinOfACommandThatReadsNoMore(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
	call.send(stdinMessage(0, "abc"))
	if _, err := io.ReadFull(process.stdinR, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	_ = process.stdinR.Close()
	call.until("the news", func() bool { return call.stdinOver })
	if call.stdinTaken != 2 {
		t.Errorf("taken %d, want 2", call.stdinTaken)
	}
	for i := range 20 { // more than the window: it is thrown away
		call.send(stdinMessage(3+int64(i)*wire.ChunkSize, string(make([]byte, wire.ChunkSize))))
	}
	call.send(stdinEnd(3 + 20*wire.ChunkSize))
	process.exit(0, nil)
	if code, err := call.wait(); code != 0 || err != nil {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestStdinThatBlocksDelaysNotTheEnd(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: true})
	call.send(stdinMessage(0, "never read"))
	call.until("started", func() bool { return call.started })
	// It exits, but a child of its own still holds the other end.
	_ = process.stdoutW.Close()
	_ = process.stderrW.Close()
	close(process.exited)
	if code, err := call.wait(); code != 0 || err != nil {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestStdinThatBreaksTheProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		without bool
		send    func(*runCall)
	}{
		"none asked for":     {without: true, send: func(c *runCall) { c.send(stdinMessage(0, "x")) }},
		"end of none":        {without: true, send: func(c *runCall) { c.send(stdinEnd(0)) }},
		"gap":                {send: func(c *runCall) { c.send(stdinMessage(1, "x")) }},
		"negative":           {send: func(c *runCall) { c.send(stdinMessage(-1, "x")) }},
		"wrong end":          {send: func(c *runCall) { c.send(stdinEnd(5)) }},
		"beyond its end":     {send: func(c *runCall) { c.send(stdinEnd(0)); c.send(stdinMessage(0, "x")) }},
		"closed before that": {send: func(c *runCall) { _ = c.stream.CloseSend() }},
		"too much": {send: func(c *runCall) {
			for i := range int64(wire.RunWindow/wire.ChunkSize + 1) {
				c.send(stdinMessage(i*wire.ChunkSize, string(make([]byte, wire.ChunkSize))))
			}
		}},
		"two starts": {send: func(c *runCall) {
			c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: &berthv1.RunStart{}}})
		}},
		"takes too much": {send: func(c *runCall) {
			c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: 1}}})
		}},
		"takes less than nothing": {send: func(c *runCall) {
			c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StderrOffset: -1}}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			process := newFakeProcess()
			client := serveProvider(t, providing(starting(process)))
			call := startRun(t, t.Context(), client, &berthv1.RunStart{Stdin: !test.without})
			call.until("started", func() bool { return call.started })
			test.send(call)
			_, err := call.wait()
			mustBe(t, err, workspace.ErrInvalid)
			if len(process.stopped()) != 1 {
				t.Error("it was not stopped")
			}
		})
	}
}

func TestHostMayCloseItsSideOfARunWithoutStdin(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.take = false
	if err := call.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	call.until("started", func() bool { return call.started })
	_, _ = io.WriteString(process.stdoutW, "still heard")
	process.exit(0, nil)
	if code, err := call.wait(); code != 0 || err != nil || string(call.out[stdout]) != "still heard" {
		t.Errorf("code %d, error %v, output %q", code, err, call.out[stdout])
	}
}

func TestRunIgnoresMessagesOfANewerHost(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.send(&berthv1.RunRequest{})
	call.until("started", func() bool { return call.started })
	process.exit(0, nil)
	if code, err := call.wait(); code != 0 || err != nil {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestSignals(t *testing.T) {
	process := newFakeProcess()
	process.onSignal = func(sig workspace.Signal) error {
		switch sig {
		case "USR2":
			return os.ErrProcessDone
		case "HUP":
			panic("hup")
		}
		return nil
	}
	client := connect(t, quiet(pluginOf(providing(starting(process)))))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	names := []string{"TERM", "USR2", "HUP", "", "SIG TERM", "term", "RTMIN+3"}
	for i, name := range names {
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: name, Sequence: int64(i)}}})
	}
	call.until("the answers", func() bool { return len(call.signals) == len(names) })
	for i, check := range []func(error) bool{
		func(err error) bool { return err == nil },
		func(err error) bool { return errors.Is(err, os.ErrProcessDone) },
		func(err error) bool { return err != nil && strings.Contains(err.Error(), "panic") },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return err == nil },
	} {
		if !check(call.signals[int64(i)]) {
			t.Errorf("signal %q: %v", names[i], call.signals[int64(i)])
		}
	}
	process.exit(0, nil)
	if _, err := call.wait(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(process.signals); got != "[TERM USR2 HUP RTMIN+3]" {
		t.Errorf("delivered %s", got)
	}
}

func TestSignalsThatAreNotDelivered(t *testing.T) {
	process := newFakeProcess()
	release := make(chan struct{})
	process.onSignal = func(workspace.Signal) error { <-release; return nil }
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	for i := range int64(maxSignals + 10) {
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: "TERM", Sequence: i}}})
	}
	// All but those that wait and the one under way.
	call.until("the refusals", func() bool { return len(call.signals) >= 9 })
	for sequence, err := range call.signals {
		if err == nil {
			t.Errorf("signal %d was delivered", sequence)
		}
	}
	close(release)
	process.exit(0, nil)
	if _, err := call.wait(); err != nil {
		t.Error(err)
	}
}

func TestC1_WhatIsInvalidIsNotStarted(t *testing.T) {
	arg := func(args ...string) [][]byte { return wire.FromBytesList(args) }
	env := func(name, value string) []*berthv1.EnvVar {
		return []*berthv1.EnvVar{{Name: []byte(name), Value: []byte(value)}}
	}
	for name, test := range map[string]struct {
		start *berthv1.RunStart
		want  error
	}{
		"no command":      {&berthv1.RunStart{Args: arg()}, workspace.ErrInvalid},
		"empty script":    {&berthv1.RunStart{Script: []byte("")}, workspace.ErrInvalid},
		"both":            {&berthv1.RunStart{Args: arg("a"), Script: []byte("b")}, workspace.ErrInvalid},
		"args and empty":  {&berthv1.RunStart{Args: arg("a"), Script: []byte("")}, workspace.ErrInvalid},
		"empty program":   {&berthv1.RunStart{Args: arg("", "x")}, workspace.ErrInvalid},
		"NUL in argument": {&berthv1.RunStart{Args: arg("a", "b\x00")}, workspace.ErrInvalid},
		"NUL in script":   {&berthv1.RunStart{Script: []byte("a\x00")}, workspace.ErrInvalid},
		"NUL in dir":      {&berthv1.RunStart{Args: arg("a"), Dir: []byte("a\x00")}, workspace.ErrInvalid},
		"no env name":     {&berthv1.RunStart{Args: arg("a"), Env: env("", "v")}, workspace.ErrInvalid},
		"= in env name":   {&berthv1.RunStart{Args: arg("a"), Env: env("a=b", "v")}, workspace.ErrInvalid},
		"NUL in value":    {&berthv1.RunStart{Args: arg("a"), Env: env("A", "s3cret\x00")}, workspace.ErrInvalid},
		"timeout":         {&berthv1.RunStart{Args: arg("a"), TimeoutNs: -1}, workspace.ErrInvalid},
		"full timeout":    {&berthv1.RunStart{Args: arg("a"), FullTimeoutNs: -1}, workspace.ErrInvalid},
		"limit":           {&berthv1.RunStart{Args: arg("a"), OutputLimit: -1}, workspace.ErrInvalid},
		"run id":          {&berthv1.RunStart{Args: arg("a"), RunId: "No"}, workspace.ErrInvalid},
		"long run id":     {&berthv1.RunStart{Args: arg("a"), RunId: strings.Repeat("a", 64)}, workspace.ErrInvalid},
		"workspace id":    {&berthv1.RunStart{Args: arg("a"), Workspace: key("a/b")}, workspace.ErrInvalid},
		"detached":        {&berthv1.RunStart{Args: arg("a"), Detached: true}, errors.ErrUnsupported},
	} {
		ws := starting(nil)
		ws.start = func(context.Context, Command) (Process, error) {
			t.Errorf("%s: started", name)
			return nil, errors.New("started")
		}
		if test.start.Args == nil && test.start.Script == nil {
			test.start.Args = [][]byte{} // startRun leaves it be
		}
		_, err := startRun(t, t.Context(), serveProvider(t, providing(ws)), test.start).wait()
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRunWithoutTheFeature(t *testing.T) {
	for name, test := range map[string]struct {
		ws    Workspace
		start *berthv1.RunStart
	}{
		"commands": {newMemory(), &berthv1.RunStart{}},
		"shell":    {&runner{bare: newBare()}, &berthv1.RunStart{Script: []byte("true")}},
	} {
		_, err := startRun(t, t.Context(), serveProvider(t, providing(test.ws)), test.start).wait()
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRunBeginsWithStart(t *testing.T) {
	client := serveProvider(t, providing(starting(newFakeProcess())))
	stream, err := client.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(stopMessage()); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	mustBe(t, fromCall(err), workspace.ErrInvalid)
}

func TestAttachRunAndListRunsAreUnsupported(t *testing.T) {
	client := serveProvider(t, providing(starting(newFakeProcess())))
	attach, err := client.AttachRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = attach.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	list, err := client.ListRuns(t.Context(), &berthv1.ListRunsRequest{Workspace: key("ws")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = list.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}

// A command that writes byte by byte costs no more memory than one that does not.
func TestOutboxPutsCrumbsTogether(t *testing.T) {
	w, o := newWindow(), newOutbox()
	for i := range 300_000 {
		room := w.reserve(10)
		w.queue(o, i/100_000%2, room, []byte{byte(i)})
	}
	if n := len(o.messages); n != 3 {
		t.Errorf("%d messages", n)
	}
	var got [2]int
	for m, _ := o.next(); m != nil; m, _ = o.next() {
		for which, chunk := range [2]*berthv1.RunOutput{m.GetStdout(), m.GetStderr()} {
			if chunk != nil {
				if int(chunk.GetOffset()) != got[which] {
					t.Errorf("%s at %d, want %d", outputNames[which], chunk.GetOffset(), got[which])
				}
				got[which] += len(chunk.GetData())
			}
		}
	}
	if got != [2]int{200_000, 100_000} {
		t.Errorf("got %v", got)
	}
}
