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

func outMessage(which int, offset int64, data string) *berthv1.RunResponse {
	chunk := &berthv1.RunOutput{Offset: offset, Data: []byte(data)}
	if which == stderr {
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stderr{Stderr: chunk}}
	}
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stdout{Stdout: chunk}}
}

func startedMessage() *berthv1.RunResponse { return startedBy(nil) }

func startedBy(registry []byte) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Started{Started: &berthv1.RunStarted{RunRegistry: registry}}}
}

func attachedMessage(stdoutOffset, stderrOffset, stdinTaken int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Attached{Attached: &berthv1.RunAttached{StdoutOffset: stdoutOffset, StderrOffset: stderrOffset, StdinTaken: stdinTaken}}}
}

func stdinTakenMessage(offset int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: &berthv1.RunStdinTaken{Offset: offset}}}
}

func exitedMessage(code int32, stdoutEnd, stderrEnd int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{
		Result: &berthv1.RunOutcome_Exited{Exited: &berthv1.Exited{Code: code}}, StdoutEnd: stdoutEnd, StderrEnd: stderrEnd,
	}}}
}

// answering is a run that sends messages whatever the host says.
func answering(messages ...*berthv1.RunResponse) func(runStream) error {
	return func(stream runStream) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestGuestThatAnswersNonsenseToRuns(t *testing.T) {
	chunk := strings.Repeat("x", wire.ChunkSize)
	flood := []*berthv1.RunResponse{startedMessage()}
	for i := range int64(12) {
		flood = append(flood, outMessage(stdout, i*wire.ChunkSize, chunk))
	}
	guest := &scriptedGuest{}
	ws, client := scripted(t, guest)
	for what, messages := range map[string][]*berthv1.RunResponse{
		"nothing":             nil,
		"no outcome":          {startedMessage()},
		"started twice":       {startedMessage(), startedMessage()},
		"a long registry":     {startedBy(make([]byte, wire.MaxRunRegistry+1)), exitedMessage(0, 0, 0)},
		"output first":        {outMessage(stdout, 0, "a")},
		"exit first":          {exitedMessage(0, 0, 0)},
		"attached":            {attachedMessage(0, 0, 0), startedMessage(), exitedMessage(0, 0, 0)},
		"a gap":               {startedMessage(), outMessage(stdout, 1, "a"), exitedMessage(0, 2, 0)},
		"a repetition":        {startedMessage(), outMessage(stderr, 0, "a"), outMessage(stderr, 0, "a"), exitedMessage(0, 0, 2)},
		"a negative offset":   {startedMessage(), outMessage(stdout, -1, "a"), exitedMessage(0, 1, 0)},
		"lost output":         {startedMessage(), outMessage(stdout, 0, "a"), exitedMessage(0, 2, 0)},
		"lost errors":         {startedMessage(), exitedMessage(0, 0, 1)},
		"a negative code":     {startedMessage(), exitedMessage(-1, 0, 0)},
		"no result":           {startedMessage(), {Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{}}}},
		"stdin taken":         {startedMessage(), stdinTakenMessage(1), exitedMessage(0, 0, 0)},
		"stdin taken below 0": {startedMessage(), stdinTakenMessage(-1), exitedMessage(0, 0, 0)},
		"a flood":             flood,
		"a large message":     {startedMessage(), outMessage(stdout, 0, strings.Repeat("x", maxGuestMessage))},
	} {
		guest.run = answering(messages...)
		call := startRun(t, t.Context(), client, &berthv1.RunStart{})
		call.take = false
		_, err := waitStatus(call)
		mustBeNonsense(t, what, err)
		if n := len(call.out[stdout]); n > wire.RunWindow+wire.ChunkSize {
			t.Errorf("%s: %d bytes came through", what, n)
		}
	}
	// It breaks nothing else; and what it may not say is not passed on.
	guest.run = answering(&berthv1.RunResponse{}, startedMessage(), outMessage(stdout, 0, ""), outMessage(stdout, 0, "abc"), &berthv1.RunResponse{},
		outMessage(stderr, 0, "d"), exitedMessage(3, 3, 1), outMessage(stdout, 3, "late"), exitedMessage(4, 3, 1))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	code, err := call.wait()
	if code != 3 || err != nil || string(call.out[stdout]) != "abc" || string(call.out[stderr]) != "d" {
		t.Errorf("code %d, %v, %q", code, err, call.out)
	}
	ws.checkReleased(t)
}

func TestErrorsInOutcomesOfGuests(t *testing.T) {
	guest := &scriptedGuest{}
	ws, _ := scripted(t, guest)
	client := serveConfigured(t, providing(ws), `{"token":"s3cret-token"}`)
	outcome := func(err error) error {
		guest.run = answering(startedMessage(), outMessage(stdout, 0, "part"), &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: &berthv1.RunOutcome{
			Result: &berthv1.RunOutcome_Error{Error: wire.ToDetail(err)}, StdoutEnd: 1 << 40, StderrEnd: -5,
		}}})
		_, got := startRun(t, t.Context(), client, &berthv1.RunStart{}).wait() // which checks the ends
		return got
	}
	var timeout *workspace.TimeoutError
	if err := outcome(&workspace.TimeoutError{Timeout: time.Minute, Survivors: "pid 1 with s3cret-token"}); !errors.As(err, &timeout) || timeout.Timeout != time.Minute || timeout.Survivors != "pid 1 with [redacted]" {
		t.Errorf("error %#v", err)
	}
	var limit *workspace.OutputLimitError
	if err := outcome(&workspace.OutputLimitError{Limit: 5}); !errors.As(err, &limit) || limit.Limit != 5 {
		t.Errorf("error %#v", err)
	}
	mustBe(t, outcome(fmt.Errorf("no room: %w", workspace.ErrTransient)), workspace.ErrTransient)
	mustBe(t, outcome(context.Canceled), context.Canceled)
	if err := outcome(errors.New("it quotes s3cret-token")); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
	var plug *workspace.PluginError
	if err := outcome(&workspace.PluginError{Provider: "p"}); err == nil || errors.As(err, &plug) {
		t.Errorf("error %#v", err)
	}
	if err := outcome(errors.New(strings.Repeat("x", 1<<20))); err == nil || len(err.Error()) > wire.MaxErrorText {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestRelayedAttach(t *testing.T) {
	guest := &scriptedGuest{}
	_, client := scripted(t, guest)
	attach := func(stdoutOffset, stderrOffset int64) *runCall {
		t.Helper()
		stream, err := client.AttachRun(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		call := &runCall{t: t, stream: stream, signals: map[int64]error{}}
		call.out = [2][]byte{stdout: make([]byte, stdoutOffset), stderr: make([]byte, stderrOffset)}
		call.send(attachMessage("run-1", stdoutOffset, stderrOffset))
		return call
	}
	guest.run = func(stream runStream) error {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if a := m.GetAttach(); a.GetWorkspace().GetId() != "inside" || string(a.GetWorkspace().GetIncarnation()) != "boot-1" || a.GetRunId() != "run-1" || a.GetStdoutOffset() != 5 || a.GetStderrOffset() != 7 {
			t.Errorf("attach %v", a)
		}
		for _, m := range []*berthv1.RunResponse{attachedMessage(3, 9, 4), startedMessage(), outMessage(stdout, 5, "ab"), outMessage(stderr, 9, "c"), stdinTakenMessage(4), exitedMessage(1, 7, 10)} {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Errorf("the outcome was not taken: %v", err)
				return err
			}
			if m.GetTaken().GetOutcome() {
				return nil
			}
		}
	}
	call := attach(5, 7)
	call.attached = true
	call.until("attached", func() bool { return call.held != nil })
	if call.held.GetStdoutOffset() != 5 || call.held.GetStderrOffset() != 9 || call.held.GetStdinTaken() != 4 {
		t.Errorf("attached %v", call.held)
	}
	call.out[stderr] = make([]byte, 9)
	call.until("the outcome", func() bool { return call.outcome != nil })
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: 7, StderrOffset: 10, Outcome: true}}})
	if code, err := call.wait(); code != 1 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}

	for what, messages := range map[string][]*berthv1.RunResponse{
		"not attached":      {startedMessage(), exitedMessage(0, 0, 0)},
		"outcome first":     {exitedMessage(0, 0, 0)},
		"attached twice":    {attachedMessage(0, 0, 0), attachedMessage(0, 0, 0)},
		"a negative offset": {attachedMessage(-1, 0, 0)},
		"a negative input":  {attachedMessage(0, 0, -1)},
		"output of before":  {attachedMessage(0, 0, 0), startedMessage(), outMessage(stdout, 4, "a")},
		"stdin goes back":   {attachedMessage(0, 0, 5), startedMessage(), stdinTakenMessage(4)},
		"stdin not sent":    {attachedMessage(0, 0, 5), startedMessage(), stdinTakenMessage(6 + wire.RunWindow)},
	} {
		guest.run = answering(messages...)
		call := attach(5, 0)
		call.attached = true
		_, err := waitStatus(call)
		mustBeNonsense(t, what, err)
	}
	guest.run = func(runStream) error { return wire.ToStatus(workspace.ErrUnavailable) }
	_, err := waitStatus(attach(0, 0))
	mustBe(t, err, workspace.ErrUnavailable)
}

// What the host's caller has not taken counts after an attach as before.
func TestRelayedAttachKeepsToTheWindow(t *testing.T) {
	guest := &scriptedGuest{run: func(stream runStream) error {
		for _, m := range []*berthv1.RunResponse{attachedMessage(wire.RunWindow, 0, 0), startedMessage()} {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			if m.GetTaken() != nil {
				break
			}
		}
		for i := range int64(3) {
			if err := stream.Send(outMessage(stdout, wire.RunWindow+i*wire.ChunkSize, strings.Repeat("x", wire.ChunkSize))); err != nil {
				return err
			}
		}
		return stream.Send(exitedMessage(0, wire.RunWindow+3*wire.ChunkSize, 0))
	}}
	_, client := scripted(t, guest)
	for _, taken := range []int64{0, wire.RunWindow} {
		call := reattach(t, t.Context(), client, "run-1", &runCall{out: [2][]byte{stdout: make([]byte, wire.RunWindow)}})
		call.take = false
		call.until("attached", func() bool { return call.started })
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: taken}}})
		code, err := waitStatus(call)
		if taken > 0 {
			if code != 0 || err != nil {
				t.Errorf("code %d, %v", code, err)
			}
			continue
		}
		mustBeNonsense(t, "more than a window", err)
		if n := len(call.out[stdout]); n > wire.RunWindow+wire.ChunkSize {
			t.Errorf("%d bytes came through", n)
		}
	}
}

// TestB3_AStartThatWasSentBeforeHasNoOutcomeBeforeItIsLookedFor: one that cannot be
// handed on was not run, but the same start may have arrived before.
func TestB3_AStartThatWasSentBeforeHasNoOutcomeBeforeItIsLookedFor(t *testing.T) {
	away := fmt.Errorf("the guest is away: %w", workspace.ErrTransient)
	ws := guardedBy(t, starting(nil))
	ws.connect = func(context.Context) error { return away }
	unreached := providing(newBare())
	unreached.attach = func(context.Context, string) (Workspace, error) { return nil, away }
	for name, provider := range map[string]*fakeProvider{"no connection": providing(ws), "no workspace": unreached} {
		client := serveProvider(t, provider)
		first := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"})
		_, err := first.wait()
		mustBe(t, err, workspace.ErrTransient)
		if first.outcome == nil {
			t.Errorf("%s: a first start has no outcome", name)
		}
		again := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a", RepeatedAfterNs: 1})
		_, err = waitStatus(again)
		mustBe(t, err, workspace.ErrTransient)
		if again.outcome != nil {
			t.Errorf("%s: a repeated start has the outcome %v", name, again.outcome)
		}
	}
}

// A host that does not read holds the guest back, and costs no memory.
func TestC10_RelayedOutputWaitsForTheHost(t *testing.T) {
	var sent atomic.Int64
	chunk := strings.Repeat("x", wire.ChunkSize)
	guest := &scriptedGuest{run: func(stream runStream) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(startedMessage()); err != nil {
			return err
		}
		// Signals' results are in no window.
		for i := range int64(1000) {
			m := &berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: &berthv1.RunSignalResult{Sequence: i, Error: &berthv1.ErrorDetail{Message: []byte(chunk[:wire.MaxErrorText])}}}}
			if err := stream.Send(m); err != nil {
				return err
			}
			sent.Add(1)
		}
		return stream.Send(exitedMessage(0, 0, 0))
	}}
	_, client := scripted(t, guest)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	last := int64(-1)
	eventually(t, "the guest is held back", func() bool {
		now := sent.Load()
		defer func() { last = now }()
		time.Sleep(50 * time.Millisecond) // to see it stand still
		return now == last && now > 0
	})
	if n := sent.Load(); n > 200 {
		t.Errorf("%d messages of %d KiB were sent", n, wire.MaxErrorText>>10)
	}
	if code, err := call.wait(); code != 0 || err != nil || len(call.signals) != 1000 {
		t.Errorf("code %d, %v, %d results", code, err, len(call.signals))
	}
}
