package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// serveDurable serves provider with durable runs; change sets the server's waits.
func serveDurable(t testing.TB, provider Provider, change ...func(*server)) berthv1.ProviderClient {
	t.Helper()
	plugin := pluginOf(provider)
	plugin.DurableRuns = true
	s := newServer(plugin.definition(), hclogNull(), &redactor{})
	for _, c := range change {
		c(s)
	}
	client := connectServer(t, s)
	t.Cleanup(s.close) // before the connection is cut
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	return client
}

func orphansAfter(d time.Duration) func(*server) { return func(s *server) { s.orphanWait = d } }

// breakable is a run whose stream the test breaks.
func breakable(t testing.TB, client berthv1.ProviderClient, start *berthv1.RunStart) (call *runCall, breaks func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	call = startRun(t, ctx, client, start)
	return call, func() {
		t.Helper()
		cancel()
		for call.recv() == nil { // what is on its way is lost
		}
	}
}

// reattach takes a run up from where the last call was, with that call's bytes.
func reattach(t testing.TB, ctx context.Context, client berthv1.ProviderClient, id string, last *runCall) *runCall {
	t.Helper()
	stream, err := client.AttachRun(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := &runCall{t: t, stream: stream, signals: map[int64]error{}, take: true, attached: true}
	if last != nil {
		c.out, c.stdinTaken = last.out, last.stdinTaken
	}
	c.send(attachMessage(id, int64(len(c.out[stdout])), int64(len(c.out[stderr]))))
	return c
}

// takeOutcome says that the outcome was taken, and sees the stream's end.
func (c *runCall) takeOutcome() (code int, err error) {
	c.t.Helper()
	c.until("the outcome", func() bool { return c.outcome != nil })
	c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{
		StdoutOffset: int64(len(c.out[stdout])), StderrOffset: int64(len(c.out[stderr])), Outcome: true,
	}}})
	return c.wait()
}

func write(t testing.TB, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
}

func TestB3_DurableRunOutlivesItsStream(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Args: [][]byte{[]byte("prog"), []byte("\xff")}, Env: []*berthv1.EnvVar{{Name: []byte("SECRET"), Value: []byte("v")}}})
	write(t, process.stdoutW, "before ")
	call.until("output", func() bool { return len(call.out[stdout]) == 7 })
	breaks()
	write(t, process.stdoutW, "between ")
	write(t, process.stderrW, "err")
	runs, err := collectRuns(t, client)
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, %v", runs, err)
	}
	if r := runs[0]; r.GetRunId() != "run-a" || r.GetDetached() || r.GetEnded() || r.GetStarted() == nil || fmt.Sprintf("%q", r.GetArgs()) != `["prog" "\xff"]` || strings.Contains(r.String(), "SECRET") {
		t.Errorf("listed as %v", r)
	}
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("output", func() bool { return string(call.out[stdout]) == "before between " && string(call.out[stderr]) == "err" })
	if h := call.held; h.GetStdoutOffset() != 7 || h.GetStderrOffset() != 0 || !call.started {
		t.Errorf("attached %v, started %v", h, call.started)
	}
	write(t, process.stdoutW, "after")
	process.exit(3, nil)
	code, err := call.takeOutcome()
	if code != 3 || err != nil || string(call.out[stdout]) != "before between after" {
		t.Errorf("code %d, %v, %q", code, err, call.out)
	}
	if runs, err := collectRuns(t, client); err != nil || len(runs) != 0 {
		t.Errorf("runs %v, %v", runs, err)
	}
	_, err = waitStatus(reattach(t, t.Context(), client, "run-a", nil))
	mustBe(t, err, fs.ErrNotExist)
	_, err = client.StopRun(t.Context(), &berthv1.StopRunRequest{Workspace: key("ws"), RunId: "run-a"})
	if err != nil {
		t.Errorf("stopping a run that is over: %v", err)
	}
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"}).takeOutcome()
	mustBe(t, err, fs.ErrExist)
	again := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a", RepeatedAfterNs: 1})
	_, err = waitStatus(again)
	mustBe(t, err, fs.ErrExist)
	_, err = waitStatus(reattach(t, t.Context(), client, "run-b", nil))
	mustBe(t, err, fs.ErrNotExist)
}

func TestDurableFeatures(t *testing.T) {
	plugin := pluginOf(providing(starting(newFakeProcess())))
	plugin.DurableRuns, plugin.Workspace = true, starting(nil)
	client := connect(t, plugin)
	described, err := client.Describe(t.Context(), &berthv1.DescribeRequest{})
	if err != nil || fmt.Sprint(described.GetFeatures()) != "[attach-run commands shell]" {
		t.Errorf("features %v, %v", described.GetFeatures(), err)
	}
	s := newServer(plugin.definition(), hclogNull(), &redactor{})
	if got := s.workspaceFeatures(newMemory()); got.Has(workspace.FeatureAttachRun) {
		t.Errorf("a workspace without commands has %v", got)
	}
}

// Whatever breaks and however often: the bytes are what they were.
func TestB3_DurableRunLosesNoByte(t *testing.T) {
	const size = 6 << 20
	want := [2][]byte{make([]byte, size), make([]byte, size/3)}
	random := rand.New(rand.NewPCG(1, 2))
	for _, stream := range want {
		for i := range stream {
			stream[i] = byte(random.Uint32())
		}
	}
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Stdin: true})
	go func() {
		done := make(chan struct{})
		go func() { defer close(done); _, _ = io.Copy(process.stderrW, bytes.NewReader(want[stderr])) }()
		for rest := want[stdout]; len(rest) > 0; {
			n := min(rand.IntN(200_000)+1, len(rest))
			_, _ = process.stdoutW.Write(rest[:n])
			rest = rest[n:]
		}
		<-done
		process.exit(0, nil)
	}()
	attaches := 0
	for call.outcome == nil {
		call.taken() // what was told before may be lost
		call.take = random.IntN(2) > 0
		stop := len(call.out[stdout]) + len(call.out[stderr]) + random.IntN(900_000)
		for call.outcome == nil && len(call.out[stdout])+len(call.out[stderr]) < stop {
			if err := call.recv(); err != nil {
				t.Fatal(err)
			}
		}
		if call.outcome != nil {
			break
		}
		breaks()
		if call.outcome != nil {
			call.outcome = nil // not taken
		}
		ctx, cancel := context.WithCancel(t.Context())
		call = reattach(t, ctx, client, "run-a", call)
		before := call
		breaks = func() {
			cancel()
			for before.recv() == nil {
			}
		}
		attaches++
	}
	if code, err := call.takeOutcome(); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	for which := range want {
		if !bytes.Equal(call.out[which], want[which]) {
			t.Errorf("%s differs: %d bytes of %d", outputNames[which], len(call.out[which]), len(want[which]))
		}
	}
	if attaches < 3 {
		t.Errorf("attached %d times", attaches)
	}
}

// A host may have any part of what was sent.
func TestB3_OutputGoesOnInTheMiddleOfAChunk(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a"})
	call.take = false
	write(t, process.stdoutW, "abcdef")
	call.until("output", func() bool { return len(call.out[stdout]) == 6 })
	breaks()
	call.out[stdout] = call.out[stdout][:2]
	call = reattach(t, t.Context(), client, "run-a", call)
	process.exit(0, nil)
	code, err := call.takeOutcome()
	if code != 0 || err != nil || string(call.out[stdout]) != "abcdef" || call.held.GetStdoutOffset() != 2 {
		t.Errorf("code %d, %v, %q, attached %v", code, err, call.out[stdout], call.held)
	}
}

func TestB3_StdinGoesOnAfterAttach(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	stdin := func(offset int64, data string) *berthv1.RunRequest {
		return &berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Offset: offset, Data: []byte(data)}}}
	}
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(process.stdinR, got); err != nil || string(got) != want {
			t.Fatalf("stdin %q, %v, want %q", got, err, want)
		}
	}
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Stdin: true})
	call.send(stdin(0, "abc"))
	read("abc")
	call.until("it is taken", func() bool { return call.stdinTaken == 3 })
	call.send(stdin(3, "def"))
	read("d") // in the middle of what the pipe takes
	breaks()
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("attached", func() bool { return call.held != nil })
	if call.held.GetStdinTaken() != 3 || call.held.GetStdinEnded() {
		t.Errorf("attached %v", call.held)
	}
	call.send(stdin(3, "de"))
	call.send(stdin(5, "fgh"))
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: 8}}})
	read("efgh")
	call.until("all is taken", func() bool { return call.stdinTaken == 8 })
	if _, err := process.stdinR.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	second := reattach(t, t.Context(), client, "run-a", call)
	second.until("attached", func() bool { return second.held != nil && second.started })
	if second.held.GetStdinTaken() != 8 || !second.held.GetStdinEnded() {
		t.Errorf("attached %v", second.held)
	}
	process.exit(0, nil)
	if code, err := second.takeOutcome(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

// What the command will not read is told to whoever attaches.
func TestB3_ClosedStdinIsToldAgain(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Stdin: true})
	_ = process.stdinR.Close()
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Data: []byte("abc")}}})
	call.until("closed", func() bool { return call.stdinOver })
	breaks()
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("closed", func() bool { return call.stdinOver })
	process.exit(0, nil)
	_, _ = call.takeOutcome()
}

func TestB3_RunWithoutStreamIsStopped(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)), orphansAfter(50*time.Millisecond))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a"})
	write(t, process.stdoutW, "some")
	call.until("output", func() bool { return len(call.out[stdout]) == 4 })
	breaks()
	eventually(t, "it is stopped", func() bool {
		runs, err := collectRuns(t, client)
		return err == nil && len(runs) == 1 && runs[0].GetEnded()
	})
	if stops := process.stopped(); fmt.Sprint(stops) != "[2s]" {
		t.Errorf("stops %v", stops)
	}
	_, err := reattach(t, t.Context(), client, "run-a", call).takeOutcome()
	if err == nil || !strings.Contains(err.Error(), "no host attached to it again") || errors.Is(err, workspace.ErrTransient) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// With a stream, even one that takes nothing, a run waits; and one that is attached
// in time is not stopped.
func TestB3_RunWithStreamIsNotStopped(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)), orphansAfter(200*time.Millisecond))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a"})
	call.until("started", func() bool { return call.started })
	breaks()
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("attached", func() bool { return call.started })
	time.Sleep(400 * time.Millisecond) // the time in which a stop would show
	if stops := process.stopped(); len(stops) > 0 {
		t.Errorf("stops %v", stops)
	}
	process.exit(0, nil)
	if code, err := call.takeOutcome(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestB3_DetachedRunGoesOnAndDropsItsOldestOutput(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)), orphansAfter(20*time.Millisecond))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Detached: true})
	write(t, process.stderrW, "a warning")
	call.until("output", func() bool { return len(call.out[stderr]) == 9 })
	breaks()
	const size = 5 << 20
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i >> 12)
	}
	_, err := process.stdoutW.Write(data) // which would wait if nothing were dropped
	if err != nil {
		t.Fatal(err)
	}
	process.exit(7, nil)
	eventually(t, "it has ended", func() bool {
		runs, err := collectRuns(t, client)
		return err == nil && len(runs) == 1 && runs[0].GetEnded() && runs[0].GetDetached()
	})
	late := reattach(t, t.Context(), client, "run-a", nil)
	late.until("attached", func() bool { return late.held != nil })
	from := late.held.GetStdoutOffset()
	if from < size-wire.RunWindow || from >= size {
		t.Errorf("attached %v", late.held)
	}
	// That the warning was taken may have been lost with the stream.
	late.out = [2][]byte{data[:from:from], call.out[stderr][:late.held.GetStderrOffset()]}
	code, err := late.takeOutcome()
	if code != 7 || err != nil || !bytes.Equal(late.out[stdout], data) || string(late.out[stderr]) != "a warning" {
		t.Errorf("code %d, %v, %d bytes, %q", code, err, len(late.out[stdout]), late.out[stderr])
	}
}

// While its time without a stream runs, a detached run loses nothing.
func TestB3_DetachedRunKeepsItsOutputAtFirst(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Detached: true})
	call.until("started", func() bool { return call.started })
	breaks()
	data := make([]byte, 3<<20)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = process.stdoutW.Write(data)
		process.exit(0, nil)
	}()
	call = reattach(t, t.Context(), client, "run-a", call)
	code, err := call.takeOutcome()
	if code != 0 || err != nil || len(call.out[stdout]) != len(data) || call.held.GetStdoutOffset() != 0 {
		t.Errorf("code %d, %v, %d bytes, attached %v", code, err, len(call.out[stdout]), call.held)
	}
	<-written
}

func TestB3_SecondStreamTakesOver(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	first := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"})
	write(t, process.stdoutW, "one")
	first.until("output", func() bool { return len(first.out[stdout]) == 3 })
	second := reattach(t, t.Context(), client, "run-a", first)
	second.until("attached", func() bool { return second.started })
	_, err := waitStatus(first)
	if err == nil || !strings.Contains(err.Error(), "another stream has attached to the run") || errors.Is(err, workspace.ErrTransient) {
		t.Errorf("the first stream ended with %v", err)
	}
	write(t, process.stdoutW, "two")
	process.exit(0, nil)
	if code, err := second.takeOutcome(); code != 0 || err != nil || string(second.out[stdout]) != "onetwo" {
		t.Errorf("code %d, %v, %q", code, err, second.out)
	}
}

func TestB3_RunWithoutStreamIsStoppedByStopRun(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", Detached: true})
	call.until("started", func() bool { return call.started })
	breaks()
	if _, err := client.StopRun(t.Context(), &berthv1.StopRunRequest{Workspace: key("ws"), RunId: "run-a"}); err != nil {
		t.Fatal(err)
	}
	if len(process.stopped()) == 0 {
		t.Error("it was not stopped")
	}
	_, err := reattach(t, t.Context(), client, "run-a", call).takeOutcome()
	mustBe(t, err, context.Canceled)
}

func TestB3_TimeoutAppliesWithoutAStream(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a", TimeoutNs: int64(100 * time.Millisecond), FullTimeoutNs: int64(time.Second)})
	call.until("started", func() bool { return call.started })
	breaks()
	_, err := reattach(t, t.Context(), client, "run-a", call).takeOutcome()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || timeout.Timeout != time.Second {
		t.Errorf("error %#v", err)
	}
}

func TestB3_SignalsOfAnotherStreamAreNotAnswered(t *testing.T) {
	process := newFakeProcess()
	release := make(chan struct{})
	process.onSignal = func(sig workspace.Signal) error {
		if sig == "HUP" {
			<-release
		}
		return nil
	}
	client := serveDurable(t, providing(starting(process)))
	signal := func(c *runCall, name string, sequence int64) {
		c.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: name, Sequence: sequence}}})
	}
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a"})
	call.until("started", func() bool { return call.started })
	signal(call, "HUP", 1)
	eventually(t, "it is being delivered", func() bool { process.mu.Lock(); defer process.mu.Unlock(); return len(process.signals) == 1 })
	breaks()
	close(release)
	signal2 := func() { signal(call, "TERM", 2) }
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("attached", func() bool { return call.started })
	signal2()
	call.until("the answer", func() bool { _, ok := call.signals[2]; return ok })
	process.exit(0, nil)
	if code, err := call.takeOutcome(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}
