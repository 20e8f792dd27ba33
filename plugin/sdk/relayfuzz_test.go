package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// script is what a hostile guest answers: a byte for the kind of each message, one
// for what is in it.
type script []byte

// message makes the i-th message. Offsets are right or nearly so, so that not every
// script breaks at its first message.
func (s script) message(i int, ends *[2]int64) (*berthv1.RunResponse, error) {
	kind, arg := s[2*i], s[2*i+1]
	near := func(n int64) int64 { return n + [...]int64{0, 0, 0, 0, 0, 1, -1, 1 << 62}[arg%8] }
	output := func(which int) *berthv1.RunResponse {
		data := strings.Repeat("x", [...]int{1, 0, 1000, wire.ChunkSize, wire.RunWindow / 2}[int(arg/8)%5])
		m := outMessage(which, near(ends[which]), data)
		ends[which] += int64(len(data))
		return m
	}
	switch kind % 16 {
	case 0, 1:
		return startedMessage(), nil
	case 2, 3, 4:
		return output(stdout), nil
	case 5, 6:
		return output(stderr), nil
	case 7:
		return stdinTakenMessage(near(int64(arg / 8))), nil
	case 8:
		m := attachedMessage(near(int64(arg/8)), int64(arg%3)-1, near(0))
		ends[stdout], ends[stderr] = max(ends[stdout], m.GetAttached().GetStdoutOffset()), max(ends[stderr], m.GetAttached().GetStderrOffset())
		return m, nil
	case 9:
		detail := &berthv1.ErrorDetail{Message: []byte(strings.Repeat("\xff", int(arg)*1000)), Kinds: []string{"x", "transient", "invalid"}, Plugin: &berthv1.PluginDetail{}}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: &berthv1.RunSignalResult{Sequence: int64(arg), Error: detail}}}, nil
	case 10:
		return &berthv1.RunResponse{}, nil
	case 11:
		m := &berthv1.RunResponse{}
		return m, proto.Unmarshal([]byte{0xfa, 0x3f, 1, arg}, m) // a member that nobody knows
	case 12, 13:
		return exitedMessage(int32(near(0)), near(ends[stdout]), ends[stderr]), nil
	case 14:
		outcome := &berthv1.RunOutcome{StdoutEnd: near(0)}
		if arg%2 == 0 {
			outcome.Result = &berthv1.RunOutcome_Error{Error: &berthv1.ErrorDetail{Timeout: &berthv1.TimeoutDetail{TimeoutNs: -1}, Plugin: &berthv1.PluginDetail{Reason: []byte("it lies")}}}
		}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: outcome}}, nil
	default:
		return nil, status.Error(codes.Code(arg%20), "the end \xff")
	}
}

// run plays the script.
func (s script) run(stream runStream) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	var ends [2]int64
	for i := range len(s) / 2 {
		m, err := s.message(i, &ends)
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// FuzzRelayedRun lets a guest answer anything. Whatever it is, the call ends, and the
// host hears nothing that it would hold against the plugin.
func FuzzRelayedRun(f *testing.F) {
	good := []byte{0, 0, 2, 0, 5, 8, 2, 24, 12, 0}
	for _, seed := range []string{
		"", string(good), "\x08\x00" + string(good), "\x00\x00\x00\x00", "\x00\x00\x02\x05\x0c\x00", "\x00\x00\x0e\x00", "\x00\x00\x0e\x01", "\x0f\x0e",
		"\x00\x00\x09\xff\x0a\x00\x0b\x00\x07\x00\x0c\x00", "\x00\x00\x02\x20\x02\x20\x02\x20\x02\x20",
	} {
		for mode := range byte(4) {
			f.Add(mode, []byte(seed))
		}
	}
	var mu sync.Mutex
	var current script
	guest := &scriptedGuest{run: func(stream runStream) error {
		mu.Lock()
		s := current
		mu.Unlock()
		return s.run(stream)
	}}
	_, client := scripted(f, guest)
	f.Fuzz(func(t *testing.T, mode byte, data []byte) {
		mu.Lock()
		current = script(data[:min(len(data), 400)])
		mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		attach, take := mode&1 != 0, mode&2 != 0
		host := &strictHost{t: t, take: take, attach: attach}
		open, first := client.Run, &berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: &berthv1.RunStart{
			Workspace: key("ws"), RunId: "run-1", Args: [][]byte{[]byte("a")}, Stdin: true,
		}}}
		if attach {
			open, first = client.AttachRun, attachMessage("run-1", 3, 0)
			host.received[stdout], host.taken[stdout] = 3, 3
		}
		stream, err := open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		host.stream = stream
		host.send(first)
		if !attach {
			host.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Data: []byte("12345")}}})
			host.stdinSent = 5
		}
		host.hear()
		if ctx.Err() != nil {
			t.Error("the call did not end")
		}
	})
}

// strictHost refuses what a host refuses.
type strictHost struct {
	t            *testing.T
	stream       guestRunStream
	take, attach bool

	attached, started, over bool
	received, taken         [2]int64
	stdinTaken, stdinSent   int64
}

func (h *strictHost) send(m *berthv1.RunRequest) {
	if err := h.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		h.t.Fatal(err)
	}
}

func (h *strictHost) hear() {
	for {
		m, err := h.stream.Recv()
		if errors.Is(err, io.EOF) {
			if !h.over {
				h.t.Error("the stream ended without an outcome")
			}
			return
		}
		if err != nil {
			if h.over || wire.Detail(err) == nil || wire.Detail(err).GetPlugin() != nil {
				h.t.Errorf("the stream ended with %v", err)
			}
			return
		}
		h.accept(m)
		if h.over && h.attach { // it takes the outcome
			h.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{Outcome: true}}})
		}
	}
}

func (h *strictHost) accept(m *berthv1.RunResponse) {
	if h.over {
		h.t.Errorf("after the outcome: %v", m)
	}
	if h.attach && !h.attached && m.GetAttached() == nil {
		h.t.Errorf("before attached: %v", m)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		h.t.Errorf("unknown members: %v", m)
	}
	switch m := m.GetMessage().(type) {
	case *berthv1.RunResponse_Attached:
		if !h.attach || h.attached || m.Attached.GetStdoutOffset() < h.received[stdout] || m.Attached.GetStderrOffset() < 0 || m.Attached.GetStdinTaken() < 0 {
			h.t.Errorf("attached %v", m.Attached)
		}
		h.attached = true
		h.received = [2]int64{m.Attached.GetStdoutOffset(), m.Attached.GetStderrOffset()}
		h.taken = h.received
		h.stdinTaken, h.stdinSent = m.Attached.GetStdinTaken(), m.Attached.GetStdinTaken()+wire.RunWindow
	case *berthv1.RunResponse_Started:
		if h.started {
			h.t.Error("started twice")
		}
		h.started = true
	case *berthv1.RunResponse_Stdout:
		h.output(stdout, m.Stdout)
	case *berthv1.RunResponse_Stderr:
		h.output(stderr, m.Stderr)
	case *berthv1.RunResponse_StdinTaken:
		if offset := m.StdinTaken.GetOffset(); offset < h.stdinTaken || offset > h.stdinSent {
			h.t.Errorf("stdin taken %d", offset)
		}
		h.stdinTaken = m.StdinTaken.GetOffset()
	case *berthv1.RunResponse_SignalResult:
		if d := m.SignalResult.GetError(); d.GetPlugin() != nil || len(d.GetMessage()) > wire.MaxErrorText || slices.Contains(d.GetKinds(), "x") {
			h.t.Errorf("a signal's result of %d bytes, kinds %v, plugin %v", len(d.GetMessage()), d.GetKinds(), d.GetPlugin())
		}
	case *berthv1.RunResponse_Outcome:
		h.over = true
		h.outcome(m.Outcome)
	default:
		h.t.Errorf("message %v", m)
	}
}

func (h *strictHost) output(which int, m *berthv1.RunOutput) {
	if !h.started || m.GetOffset() != h.received[which] {
		h.t.Errorf("%s at %d after %d, started %v", outputNames[which], m.GetOffset(), h.received[which], h.started)
	}
	h.received[which] += int64(len(m.GetData()))
	if pending := h.received[stdout] - h.taken[stdout] + h.received[stderr] - h.taken[stderr]; pending > wire.RunWindow+wire.ChunkSize {
		h.t.Errorf("%d bytes were not taken", pending)
	}
	if h.take {
		h.taken = h.received
		h.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: h.taken[stdout], StderrOffset: h.taken[stderr]}}})
	}
}

func (h *strictHost) outcome(m *berthv1.RunOutcome) {
	switch result := m.GetResult().(type) {
	case *berthv1.RunOutcome_Exited:
		if result.Exited.GetCode() < 0 || m.GetStdoutEnd() != h.received[stdout] || m.GetStderrEnd() != h.received[stderr] {
			h.t.Errorf("outcome %v after %v", m, h.received)
		}
	case *berthv1.RunOutcome_Error:
		if d := result.Error; d.GetPlugin() != nil || d.GetTimeout().GetTimeoutNs() < 0 {
			h.t.Errorf("outcome %v", m)
		}
	default:
		h.t.Errorf("outcome %v", m)
	}
}

// FuzzRelayedFiles lets a guest answer any messages of the right types to the calls
// on files.
func FuzzRelayedFiles(f *testing.F) {
	add := func(messages ...proto.Message) {
		var data []byte
		for _, m := range messages {
			raw, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			data = append(append(data, byte(len(raw))), raw...)
		}
		for call := range byte(4) {
			f.Add(call, data)
		}
	}
	info := &berthv1.FileInfo{Name: []byte("a"), Size: 3, Mode: 0o100644, ModTime: &berthv1.Time{Seconds: 1}, Link: true, Target: []byte("t")}
	add(&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Info{Info: info}},
		&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte("abc")}},
		&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_End{End: 3}})
	add(&berthv1.ReadDirResponse{Entries: []*berthv1.FileInfo{info}}, &berthv1.ReadDirResponse{Entries: []*berthv1.FileInfo{{Name: []byte("b")}}, End: true})
	add(&berthv1.StatResponse{Info: info})
	add(&berthv1.RealPathResponse{Path: []byte("/a")})

	var mu sync.Mutex
	var current []byte
	next := func(i int, m proto.Message) bool {
		mu.Lock()
		rest := current
		mu.Unlock()
		for ; len(rest) > 0; i-- {
			n := min(int(rest[0]), len(rest)-1)
			raw := rest[1 : 1+n]
			if rest = rest[1+n:]; i == 0 {
				return proto.Unmarshal(raw, m) == nil
			}
		}
		return false
	}
	guest := &scriptedGuest{}
	guest.stat = func() (*berthv1.StatResponse, error) { m := &berthv1.StatResponse{}; next(0, m); return m, nil }
	guest.realPath = func() (*berthv1.RealPathResponse, error) {
		m := &berthv1.RealPathResponse{}
		next(0, m)
		return m, nil
	}
	guest.read = func(stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
		for i, m := 0, (&berthv1.ReadFileResponse{}); next(i, m); i, m = i+1, (&berthv1.ReadFileResponse{}) {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	guest.list = func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
		for i, m := 0, (&berthv1.ReadDirResponse{}); next(i, m); i, m = i+1, (&berthv1.ReadDirResponse{}) {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	_, client := scripted(f, guest)
	f.Fuzz(func(t *testing.T, call byte, data []byte) {
		mu.Lock()
		current = data
		mu.Unlock()
		var err error
		switch call % 4 {
		case 0:
			_, err = downloadFile(t, client, &berthv1.ReadFileRequest{Path: []byte("a"), Length: int64(call / 64)})
		case 1:
			_, err = listDir(t, client, "a")
		case 2:
			var answer *berthv1.StatResponse
			answer, err = client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
			err = fromCall(err)
			if err == nil && (answer.GetInfo() == nil || answer.GetInfo().GetSize() < 0) {
				t.Errorf("answer %v", answer)
			}
		case 3:
			var answer *berthv1.RealPathResponse
			answer, err = client.RealPath(t.Context(), &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("a")})
			err = fromCall(err)
			if path := string(answer.GetPath()); err == nil && (!strings.HasPrefix(path, "/") || strings.Contains(path, "\x00")) {
				t.Errorf("answer %q", path)
			}
		}
		var plug *workspace.PluginError
		if errors.As(err, &plug) || err != nil && !strings.Contains(fmt.Sprint(err), "the guest in workspace ws answered ") {
			t.Errorf("error %v", err)
		}
	})
}
