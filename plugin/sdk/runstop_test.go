package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func stopMessage() *berthv1.RunRequest {
	return &berthv1.RunRequest{Message: &berthv1.RunRequest_Stop{Stop: &berthv1.RunStop{}}}
}

func TestC5_TimeoutStopsTheCommand(t *testing.T) {
	for _, survivors := range []string{"", "pid 5: operation not permitted"} {
		process := newFakeProcess()
		process.onStop = func(time.Duration) string { process.exit(143, nil); return survivors }
		client := serveProvider(t, providing(starting(process)))
		go func() { _, _ = io.WriteString(process.stdoutW, "partial") }()
		call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(300 * time.Millisecond), FullTimeoutNs: int64(time.Second)})
		_, err := call.wait()
		var timeout *workspace.TimeoutError
		if !errors.As(err, &timeout) || timeout.Timeout != time.Second || timeout.Ceiling || timeout.Survivors != survivors {
			t.Fatalf("error %#v", err)
		}
		if string(call.out[stdout]) != "partial" {
			t.Errorf("output %q", call.out[stdout])
		}
		if stops := process.stopped(); fmt.Sprint(stops) != "[2s]" {
			t.Errorf("stops %v", stops)
		}
	}
}

func TestC5_StopThatHangsIsReported(t *testing.T) {
	t.Parallel()
	process := newFakeProcess()
	release := make(chan struct{})
	process.onStop = func(time.Duration) string { <-release; return "" }
	client := serveProvider(t, providing(starting(process)))
	begin := time.Now()
	_, err := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(time.Millisecond)}).wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !strings.Contains(timeout.Survivors, "still stopping it") || !strings.Contains(timeout.Survivors, "not told its end") {
		t.Errorf("error %#v", err)
	}
	if took := time.Since(begin); took > testTimeout/2 {
		t.Errorf("it took %v", took)
	}
	close(release)
	process.exit(137, nil)
}

func TestC5_WaitThatHangsAfterStopIsReported(t *testing.T) {
	t.Parallel()
	process := newFakeProcess()
	process.onStop = func(time.Duration) string { return "pid 9 is in the kernel" }
	client := serveProvider(t, providing(starting(process)))
	_, err := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(time.Millisecond)}).wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !strings.HasPrefix(timeout.Survivors, "pid 9 is in the kernel; ") {
		t.Errorf("error %#v", err)
	}
	process.exit(137, nil)
}

func TestC5_ProvidersOwnCeilingPasses(t *testing.T) {
	process := newFakeProcess()
	process.exit(0, &workspace.TimeoutError{Timeout: time.Minute, Ceiling: true})
	_, err := startRun(t, t.Context(), serveProvider(t, providing(starting(process))), &berthv1.RunStart{}).wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !timeout.Ceiling || timeout.Timeout != time.Minute {
		t.Errorf("error %#v", err)
	}
}

func TestC6_StopMessageCancels(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(time.Hour)})
	call.until("started", func() bool { return call.started })
	call.send(stopMessage())
	_, err := call.wait()
	mustBe(t, err, context.Canceled)
	if stops := process.stopped(); fmt.Sprint(stops) != "[2s]" {
		t.Errorf("stops %v", stops)
	}
}

func TestC6_BrokenStreamStopsTheCommand(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	ctx, cancel := context.WithCancel(t.Context())
	call := startRun(t, ctx, client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	cancel()
	eventually(t, "the command is stopped and closed", func() bool {
		process.mu.Lock()
		defer process.mu.Unlock()
		return len(process.stops) == 1 && process.closed == 1
	})
}

func TestC7_OutputLimit(t *testing.T) {
	for _, test := range []struct {
		out, err int
		over     bool
	}{{1000, 0, false}, {0, 1000, false}, {500, 500, false}, {1001, 0, true}, {600, 600, true}, {1 << 20, 0, true}} {
		process := newFakeProcess()
		client := serveProvider(t, providing(starting(process)))
		go func() {
			_, _ = process.stdoutW.Write(make([]byte, test.out))
			_, _ = process.stderrW.Write(make([]byte, test.err))
			process.exit(3, nil)
		}()
		call := startRun(t, t.Context(), client, &berthv1.RunStart{OutputLimit: 1000})
		code, err := call.wait()
		got := len(call.out[stdout]) + len(call.out[stderr])
		if !test.over {
			if code != 3 || err != nil || got != test.out+test.err {
				t.Errorf("%+v: code %d, error %v, %d bytes", test, code, err, got)
			}
			continue
		}
		var limit *workspace.OutputLimitError
		if !errors.As(err, &limit) || limit.Limit != 1000 || got != 1000 {
			t.Errorf("%+v: error %#v, %d bytes", test, err, got)
		}
		if len(process.stopped()) == 0 {
			t.Errorf("%+v: it was not stopped", test)
		}
	}
}

// counting tells how much was read of it.
type counting struct {
	io.Reader
	n atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// flooding writes size bytes to stdout and exits once they are read.
func flooding(size int64) (*fakeProcess, *counting) {
	process := newFakeProcess()
	source := &counting{Reader: io.LimitReader(pattern{}, size)}
	process.stdoutR = source
	return process, source
}

// pattern is an endless text in which a lost or doubled byte shows.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i % 251)
	}
	return len(p), nil
}

func TestC10_UntakenOutputIsBounded(t *testing.T) {
	const size = 5 << 20
	process, source := flooding(size)
	process.exit(0, nil) // it ended long ago, all was written to its pipe
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(2 * time.Second)})
	call.take = false
	// What the window holds comes, though nothing is taken.
	call.until("the window", func() bool { return len(call.out[stdout]) > wire.RunWindow-2*maxPipeRead })
	eventually(t, "reading stops", func() bool {
		before := source.n.Load()
		time.Sleep(20 * time.Millisecond) // a while in which it would go on
		return source.n.Load() == before
	})
	if n := source.n.Load(); n > wire.RunWindow {
		t.Errorf("%d bytes were read ahead of the host", n)
	}
	// The command's timeout is not the caller's: it is not dropped, however slow.
	time.Sleep(2100 * time.Millisecond)
	call.take = true
	call.taken()
	code, err := call.wait()
	if code != 0 || err != nil || len(call.out[stdout]) != size {
		t.Errorf("code %d, error %v, %d bytes", code, err, len(call.out[stdout]))
	}
}

func TestC10_SlowCallerDelaysNoTimeout(t *testing.T) {
	process, source := flooding(1 << 40)
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{TimeoutNs: int64(200 * time.Millisecond)})
	call.take = false
	_, err := call.wait()
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) {
		t.Errorf("error %v", err)
	}
	if got := len(call.out[stdout]); got > wire.RunWindow || got < wire.RunWindow-2*maxPipeRead {
		t.Errorf("%d bytes came, %d were read", got, source.n.Load())
	}
	eventually(t, "an output without end is given up", func() bool {
		before := source.n.Load()
		time.Sleep(20 * time.Millisecond) // a while in which it would go on
		return source.n.Load() == before
	})
}

func TestC10_HostThatDoesNotReadDelaysNoTimeout(t *testing.T) {
	process, _ := flooding(1 << 40)
	stopped := make(chan struct{})
	process.onStop = func(time.Duration) string { close(stopped); process.exit(143, nil); return "" }
	client := serveProvider(t, providing(starting(process)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	startRun(t, ctx, client, &berthv1.RunStart{TimeoutNs: int64(100 * time.Millisecond)})
	select {
	case <-stopped:
	case <-time.After(testTimeout):
		t.Fatal("the timeout never fired")
	}
}

func TestC4_OutputIsExact(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	var want [2]bytes.Buffer
	go func() {
		for i := range 3000 {
			w, buf := process.stdoutW, &want[stdout]
			if i%3 == 0 {
				w, buf = process.stderrW, &want[stderr]
			}
			piece := bytes.Repeat([]byte{byte(i), '\n', 0xff}, 1+i%700)
			buf.Write(piece)
			_, _ = w.Write(piece)
		}
		process.exit(0, nil)
	}()
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	if code, err := call.wait(); code != 0 || err != nil {
		t.Fatalf("code %d, error %v", code, err)
	}
	for which := range want {
		if !bytes.Equal(call.out[which], want[which].Bytes()) {
			t.Errorf("%s differs: %d bytes, want %d", outputNames[which], len(call.out[which]), want[which].Len())
		}
	}
}

func TestL7_DestroyEndsRunsAtOnce(t *testing.T) {
	process := newFakeProcess()
	release := make(chan struct{})
	process.onStop = func(time.Duration) string { <-release; process.exit(137, nil); return "" }
	provider := providing(starting(process))
	destroyed := make(chan struct{})
	provider.destroy = func(context.Context, string) error { close(destroyed); return nil }
	client := serveProvider(t, provider)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	result := make(chan error, 1)
	go func() {
		_, err := client.Destroy(context.Background(), &berthv1.DestroyRequest{Id: "ws"})
		result <- err
	}()
	_, err := call.wait() // though the process does not stop
	mustBe(t, err, workspace.ErrUnavailable)
	select {
	case <-destroyed:
		t.Error("the workspace was destroyed under a command that was still being stopped")
	default:
	}
	close(release)
	if err := <-result; err != nil {
		t.Errorf("destroy: %v", err)
	}
	if stops := process.stopped(); fmt.Sprint(stops) != "[0s]" {
		t.Errorf("stops %v", stops)
	}
}

// watched is a runner with a Watch.
type watched struct {
	*runner
	watch func(ctx context.Context) error
}

func (w watched) Watch(ctx context.Context) error { return w.watch(ctx) }

func TestL7_WatcherEndsRuns(t *testing.T) {
	processes := []*fakeProcess{newFakeProcess(), newFakeProcess()}
	gone, n := make(chan struct{}), atomic.Int64{}
	ws := watched{starting(nil), func(ctx context.Context) error {
		select {
		case <-gone:
			return fmt.Errorf("its container died: %w", workspace.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	ws.start = func(context.Context, Command) (Process, error) { return processes[n.Add(1)-1], nil }
	provider := providing(ws)
	var attaches atomic.Int64
	provider.attach = func(context.Context, string) (Workspace, error) { attaches.Add(1); return ws, nil }
	client := serveProvider(t, provider)
	var calls []*runCall
	for range processes {
		call := startRun(t, t.Context(), client, &berthv1.RunStart{})
		call.until("started", func() bool { return call.started })
		calls = append(calls, call)
	}
	close(gone)
	for _, call := range calls {
		_, err := call.wait()
		mustBe(t, err, workspace.ErrUnavailable)
		if !strings.Contains(err.Error(), "its container died") {
			t.Errorf("error %v", err)
		}
	}
	for _, process := range processes {
		eventually(t, "the command is stopped", func() bool { return len(process.stopped()) > 0 })
	}
	before := attaches.Load()
	processes = append(processes, newFakeProcess())
	processes[2].exit(0, nil)
	_, _ = startRun(t, t.Context(), client, &berthv1.RunStart{}).wait()
	if attaches.Load() != before+1 {
		t.Error("a workspace that was gone is still cached")
	}
}

// Commands that follow each other share a watch, which ends some time after the last.
func TestCommandsShareAWatch(t *testing.T) {
	var watches, going atomic.Int64
	ws := watched{starting(nil), func(ctx context.Context) error {
		watches.Add(1)
		going.Add(1)
		defer going.Add(-1)
		<-ctx.Done()
		return ctx.Err()
	}}
	ws.start = func(context.Context, Command) (Process, error) {
		process := newFakeProcess()
		process.exit(0, nil)
		return process, nil
	}
	s := newServer(pluginOf(providing(ws)).definition(), hclogNull(), &redactor{})
	s.watchLinger = 300 * time.Millisecond
	client := connectServer(t, s)
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	run := func() {
		t.Helper()
		if code, err := startRun(t, t.Context(), client, &berthv1.RunStart{}).wait(); code != 0 || err != nil {
			t.Fatalf("code %d, %v", code, err)
		}
	}
	const runs = 100
	for range runs {
		run()
	}
	if n := watches.Load(); n > runs/2 {
		t.Errorf("%d commands began %d watches", runs, n)
	}
	eventually(t, "the watch ends", func() bool { return going.Load() == 0 })
	before := watches.Load()
	run()
	eventually(t, "the next command is watched", func() bool { return watches.Load() > before })
	s.cache.forgetID("ws")
	eventually(t, "the watch of a workspace that is closed ends", func() bool { return going.Load() == 0 })
}

func TestWatcherThatMisbehavesEndsNothing(t *testing.T) {
	for name, watch := range map[string]func(context.Context) error{
		"error":   func(context.Context) error { return errors.New("cannot watch") },
		"nothing": func(context.Context) error { return nil },
		"panic":   func(context.Context) error { panic("watch") },
	} {
		process := newFakeProcess()
		p := quiet(pluginOf(providing(watched{starting(process), watch})))
		client := connect(t, p)
		if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		call := startRun(t, t.Context(), client, &berthv1.RunStart{})
		call.until("started", func() bool { return call.started })
		process.exit(5, nil)
		if code, err := call.wait(); code != 5 || err != nil {
			t.Errorf("%s: code %d, error %v", name, code, err)
		}
	}
}

func TestStopRun(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "mine"})
	call.until("started", func() bool { return call.started })
	stop := func(id string) error {
		_, err := client.StopRun(t.Context(), &berthv1.StopRunRequest{Workspace: key("ws"), RunId: id})
		return fromCall(err)
	}
	mustBe(t, stop("other"), fs.ErrNotExist)
	if err := stop("mine"); err != nil {
		t.Fatal(err)
	}
	if len(process.stopped()) != 1 {
		t.Error("it is not stopped")
	}
	_, err := call.wait()
	mustBe(t, err, context.Canceled)
	if err := stop("mine"); err != nil {
		t.Errorf("one that is over: %v", err)
	}
}

func TestRunIDIsNeverUsedTwice(t *testing.T) {
	process := newFakeProcess()
	process.exit(0, nil)
	client := serveProvider(t, providing(starting(process)))
	first := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "once"})
	if _, err := first.wait(); err != nil {
		t.Fatal(err)
	}
	second := startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "once"})
	_, err := second.wait()
	mustBe(t, err, fs.ErrExist)
	if second.started {
		t.Error("it was started")
	}
}

// TestRegistryRepeatsWhatItKnows: a start that was sent before runs only where it is
// known not to have run since.
func TestRegistryRepeatsWhatItKnows(t *testing.T) {
	g := newRegistry()
	g.since = time.Now().Add(-time.Minute)
	add := func(id string, age time.Duration) error {
		return g.add("ws", &run{id: id, begun: time.Now(), start: &berthv1.RunStart{RepeatedAfterNs: int64(age)}})
	}
	if err := add("a", 50*time.Second); err != nil {
		t.Error(err)
	}
	mustBe(t, add("a", 50*time.Second), fs.ErrExist)
	mustBe(t, add("b", time.Minute), fs.ErrNotExist)               // it might have run before all that is known,
	mustBe(t, add("b", time.Minute-time.Second/2), fs.ErrNotExist) // also if it was long on its way
	for i := range rememberedRuns {
		if err := add(strconv.Itoa(i), 0); err != nil {
			t.Fatal(err)
		}
	}
	// One was forgotten, which was used just now.
	mustBe(t, add("b", time.Second), fs.ErrNotExist)
}

func TestRegistryRemembersSoManyRuns(t *testing.T) {
	g := newRegistry()
	add := func(i int) error { return g.add("ws", &run{id: strconv.Itoa(i)}) }
	for i := range rememberedRuns + 10 {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	mustBe(t, add(rememberedRuns+9), fs.ErrExist)
	mustBe(t, add(10), fs.ErrExist)
	if err := add(9); err != nil {
		t.Errorf("the oldest is still remembered: %v", err)
	}
	if set := g.sets["ws"]; len(set.used) != rememberedRuns || len(set.order) != rememberedRuns {
		t.Errorf("%d and %d remembered", len(set.used), len(set.order))
	}
}
