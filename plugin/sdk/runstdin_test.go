package sdk

import (
	"io"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

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
