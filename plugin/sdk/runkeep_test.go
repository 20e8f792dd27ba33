package sdk

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestB3_OutcomeIsKeptUntilTaken(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-a"})
	write(t, process.stdoutW, "out")
	process.exit(5, nil)
	call.until("the outcome", func() bool { return call.outcome != nil })
	breaks()
	// A host that sends no more and does not take it ends the stream, no more.
	call.outcome = nil
	call = reattach(t, t.Context(), client, "run-a", call)
	call.until("the outcome", func() bool { return call.outcome != nil })
	if err := call.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if code, err := call.wait(); code != 5 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	call = reattach(t, t.Context(), client, "run-a", nil)
	call.until("attached", func() bool { return call.held != nil })
	if from := call.held.GetStdoutOffset(); from != 3 {
		t.Errorf("output that was had is held from %d on", from)
	}
	call.out[stdout] = []byte("out")
	if code, err := call.takeOutcome(); code != 5 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	_, err := waitStatus(reattach(t, t.Context(), client, "run-a", nil))
	mustBe(t, err, fs.ErrNotExist)
}

func TestB3_OutcomeIsNotKeptForEver(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)), func(s *server) { s.outcomeWait = 100 * time.Millisecond })
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"})
	process.exit(0, nil)
	if code, err := call.wait(); code != 0 || err != nil { // the stream ends too
		t.Errorf("code %d, %v", code, err)
	}
	if runs, err := collectRuns(t, client); err != nil || len(runs) != 0 {
		t.Errorf("runs %v, %v", runs, err)
	}
	_, err := waitStatus(reattach(t, t.Context(), client, "run-a", nil))
	mustBe(t, err, fs.ErrNotExist)
}

func TestB3_AttachThatIsInvalid(t *testing.T) {
	process := newFakeProcess()
	client := serveDurable(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"})
	call.until("started", func() bool { return call.started })
	for _, m := range []*berthv1.RunRequest{
		stopMessage(), attachMessage("run-a", 1, 0), attachMessage("run-a", 0, 1), attachMessage("run-a", -1, 0), attachMessage("run-a", 0, -1),
	} {
		stream, err := client.AttachRun(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		mustBe(t, fromCall(err), workspace.ErrInvalid)
	}
	// None of these took anything from the stream that is there.
	process.exit(0, nil)
	if code, err := call.takeOutcome(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestL7_DestroyEndsDurableRuns(t *testing.T) {
	processes := []*fakeProcess{newFakeProcess(), newFakeProcess()}
	n := atomic.Int64{}
	ws := starting(nil)
	ws.start = func(context.Context, Command) (Process, error) { return processes[n.Add(1)-1], nil }
	client := serveDurable(t, providing(ws))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a"})
	call.until("started", func() bool { return call.started })
	left, breaks := breakable(t, client, &berthv1.RunStart{RunId: "run-b"})
	left.until("started", func() bool { return left.started })
	breaks()
	if _, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "ws"}); err != nil {
		t.Fatal(err)
	}
	_, err := call.takeOutcome()
	mustBe(t, err, workspace.ErrUnavailable)
	for _, process := range processes {
		if len(process.stopped()) == 0 {
			t.Error("a command was not stopped")
		}
	}
	_, err = waitStatus(reattach(t, t.Context(), client, "run-b", nil))
	mustBe(t, err, fs.ErrNotExist)
}

// The outcomes that nobody takes are bounded, in number and in bytes.
func TestOutcomesAreBounded(t *testing.T) {
	g := newRegistry()
	s := &server{runs: g, outcomeWait: time.Hour, redactor: &redactor{}}
	s.def.durableRuns = true
	ended := func(id string, bytes int) *run {
		r := s.newRun(&berthv1.RunStart{Workspace: key("ws"), RunId: id})
		if err := g.add("ws", r); err != nil {
			t.Fatal(err)
		}
		r.out.park()
		for bytes > 0 {
			n := r.window.reserve(min(bytes, wire.ChunkSize))
			r.window.queue(r.out, stdout, n, make([]byte, n))
			bytes -= n
		}
		r.exit(0)
		return r
	}
	var runs []*run
	for i := range maxOutcomes + 10 {
		runs = append(runs, ended(fmt.Sprintf("run-%d", i), 0))
	}
	if got := g.list("ws"); len(got) != maxOutcomes || got[0] != runs[10] {
		t.Errorf("%d runs, the first is %s", len(got), got[0].id)
	}
	large := maxOutcomeBytes/wire.RunWindow + 4
	for i := range large {
		runs = append(runs, ended(fmt.Sprintf("large-%d", i), wire.RunWindow))
	}
	var bytes int64
	got := g.list("ws")
	for _, r := range got {
		bytes += r.out.holds()
	}
	if bytes > maxOutcomeBytes || bytes < maxOutcomeBytes/2 || got[len(got)-1] != runs[len(runs)-1] {
		t.Errorf("%d bytes of %d runs", bytes, len(got))
	}
	for _, r := range runs {
		r.forget()
	}
	if got := g.list("ws"); len(got) != 0 || len(g.kept) != 0 {
		t.Errorf("%d runs and %d kept are left", len(got), len(g.kept))
	}
}
