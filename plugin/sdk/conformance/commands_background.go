package conformance

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func backgroundChecks() []check {
	return []check{
		{name: "C8_BackgroundChildHoldsUpNothing", needs: commands, run: checkBackgroundHolds},
		{name: "C8_WritingChildHoldsUpNothing", needs: commands, run: checkBackgroundWrites},
		{name: "C8_BackgroundChildGoesOn", needs: commands, run: checkBackgroundGoesOn},
		{name: "C8_OutputAtTheEndReachesASlowReader", needs: commands, run: checkSlowReader},
	}
}

func concurrencyChecks() []check {
	return []check{
		{name: "C10_CommandsRunConcurrently", needs: commands, run: checkConcurrent},
		{name: "C10_UnreadOutputDelaysNoOtherCall", needs: commands, run: checkUnreadOutput},
		{name: "C10_UnreadOutputDelaysNotItsTimeout", needs: commands, run: checkUnreadTimeout},
		{name: "C10_UnreadOutputIsBounded", needs: commands, run: checkUnreadBounded},
	}
}

// backgroundTimes: the command after one that left a child paid for it too
// (moby#33039).
const backgroundTimes = 3

func checkBackgroundHolds(t testing.TB, e *env) {
	const n = 30_000
	pids := e.pids(t)
	for i := range backgroundTimes {
		cmd := e.cmd(t, "background", pids, "hold", strconv.Itoa(n), "-")
		began := time.Now()
		res, err := e.run(t, cmd)
		took := time.Since(began)
		if err != nil || res.ExitCode != 0 || !bytes.Equal(res.Stdout, pattern.Bytes(n)) {
			t.Fatalf("a command that leaves a child: %.300s, want exit code 0 and %d bytes", outcome(res, err), n)
		}
		if took > e.opts.limits.slack {
			t.Errorf("run %d: the result came after %v, though the command was done", i, took)
		}
	}
	if left := e.alive(t, pids); len(left) != backgroundTimes {
		t.Errorf("of %d background children %d live", backgroundTimes, len(left))
	}
}

func checkBackgroundWrites(t testing.TB, e *env) {
	const n = 1000
	pids := e.pids(t)
	cmd := e.cmd(t, "background", pids, "write", strconv.Itoa(n), "-")
	began := time.Now()
	res, err := e.run(t, cmd)
	took := time.Since(began)
	if err != nil || res.ExitCode != 0 || !bytes.HasPrefix(res.Stdout, pattern.Bytes(n)) {
		t.Fatalf("a command that leaves a child which writes for ever: %.300s, want exit code 0 and its own %d bytes", outcome(res, err), n)
	}
	if took > e.opts.limits.slack {
		t.Errorf("the result came after %v, though the command was done", took)
	}
	if left := e.alive(t, pids); len(left) != 1 {
		t.Errorf("the background child did not go on")
	}
}

func checkBackgroundGoesOn(t testing.TB, e *env) {
	pids, mark := e.pids(t), join(e.dir(t), "mark")
	res := e.success(t, e.cmd(t, "background", pids, "late", "10", mark))
	if !bytes.HasPrefix(res.Stdout, pattern.Bytes(10)) {
		t.Errorf("stdout is %q", res.Stdout)
	}
	e.eventually(t, "the background child has written more than a pipe holds, and its mark", func() bool { return e.exists(t, mark) })
}

// slowWriter takes a little at a time.
type slowWriter struct {
	each time.Duration
	buf  bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	for chunk := b; len(chunk) > 0; {
		n := min(len(chunk), 8<<10)
		pause(w.each)
		w.buf.Write(chunk[:n])
		chunk = chunk[n:]
	}
	return len(b), nil
}

func checkSlowReader(t testing.TB, e *env) {
	const n = 60_000 // less than a pipe holds: all of it is there at the exit
	out := &slowWriter{each: 300 * time.Millisecond}
	cmd := e.cmd(t, "background", e.pids(t), "hold", strconv.Itoa(n), "-")
	cmd.Stdout = out
	res, err := e.run(t, cmd)
	if err != nil || res.ExitCode != 0 || !bytes.Equal(out.buf.Bytes(), pattern.Bytes(n)) {
		t.Errorf("%.200s; a slow reader got %s", outcome(res, err), difference(out.buf.Bytes(), pattern.Bytes(n)))
	}
}

// atOnce is how many commands must be there together.
const atOnce = 8

func checkConcurrent(t testing.TB, e *env) {
	cmd := e.cmd(t, "barrier", e.dir(t), strconv.Itoa(atOnce))
	cmd.Timeout = e.opts.limits.patience
	ws := e.shared(t)
	ctx, cancel := context.WithCancel(e.context(t))
	defer cancel()
	answers := make(chan answer, atOnce)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			res, err := ws.Run(ctx, cmd)
			answers <- answer{res, err}
		})
	}
	defer wg.Wait()
	for range atOnce {
		if a := <-answers; a.err != nil || a.res.ExitCode != 0 {
			cancel() // the others would wait for it, perhaps one after the other
			t.Fatalf("of %d commands that wait for each other, one: %s", atOnce, outcome(a.res, a.err))
		}
	}
}

// gate is a writer that takes nothing before it is opened.
type gate struct {
	open  chan struct{}
	first chan struct{} // closed when the first bytes are offered
	once  sync.Once
	n     int64
}

func newGate() *gate { return &gate{open: make(chan struct{}), first: make(chan struct{})} }

func (g *gate) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.first) })
	<-g.open
	g.n += int64(len(b))
	return len(b), nil
}

// unread starts a command whose output nobody takes.
func (e *env) unread(t testing.TB, cmd workspace.Command) (workspace.Process, *gate) {
	t.Helper()
	g := newGate()
	cmd.Stdout, cmd.Stderr, cmd.OutputLimit = g, io.Discard, workspace.NoOutputLimit
	p, err := e.shared(t).Start(e.context(t), cmd)
	if err != nil {
		t.Fatalf("start %s: %v", describe(cmd), err)
	}
	timer := time.NewTimer(e.opts.limits.patience)
	defer timer.Stop()
	select {
	case <-g.first:
	case <-timer.C:
		close(g.open)
		t.Fatalf("%s: no output after %v", describe(cmd), e.opts.limits.patience)
	}
	return p, g
}

func checkUnreadOutput(t testing.TB, e *env) {
	const n = 16 << 20
	p, g := e.unread(t, e.cmd(t, "pattern", strconv.Itoa(n), "0"))
	opened := sync.OnceFunc(func() { close(g.open) })
	defer opened()
	pause(e.opts.limits.settle) // until all buffers on the way are full
	began := time.Now()
	for range 5 {
		if got := e.output(t, "print", hexOf([]byte("x")), ""); got != "x" {
			t.Errorf("another command says %q, want x", got)
		}
		if e.features.Has(workspace.FeatureFiles) {
			if _, err := e.shared(t).ReadDir(e.context(t), "."); err != nil {
				t.Errorf("a listing beside output that nobody reads: %v", err)
			}
		}
	}
	if took := time.Since(began); took > e.opts.limits.slack {
		t.Errorf("five other commands took %v beside output that nobody reads", took)
	}
	opened()
	if res, err := e.wait(t, p, "the command, now read"); err != nil || res.ExitCode != 0 || g.n != n {
		t.Errorf("the command, now read: %s, %d bytes, want %d", outcome(res, err), g.n, n)
	}
}

func checkUnreadTimeout(t testing.TB, e *env) {
	cmd := e.cmd(t, "yes")
	cmd.Timeout = shortTimeout
	began := time.Now()
	p, g := e.unread(t, cmd)
	defer close(g.open)
	a := within(t, cmd.Timeout+stopTime+e.opts.limits.slack, "a command whose output nobody reads, after its timeout", func() answer {
		res, err := p.Wait()
		return answer{res, err}
	})
	wantTimeout(t, "a command whose output nobody reads", a.res, a.err, cmd.Timeout)
	if took := time.Since(began); took < cmd.Timeout {
		t.Errorf("it timed out after %v, want %v", took, cmd.Timeout)
	}
}

// mostUnread is about 1 MiB in each process, what gRPC's windows and the pipe
// hold, and room for a provider that has one process more.
const mostUnread = 8 << 20

func checkUnreadBounded(t testing.TB, e *env) {
	counter := join(e.dir(t), "count")
	p, g := e.unread(t, e.cmd(t, "flood", counter))
	opened := sync.OnceFunc(func() { close(g.open) })
	defer opened()
	written := func() int64 {
		cmd := e.cmd(t, "show", counter)
		n, err := strconv.ParseInt(strings.TrimSpace(string(e.success(t, cmd).Stdout)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	e.eventually(t, "the command stops because nobody reads", func() bool {
		n := written()
		if n > mostUnread {
			t.Fatalf("nobody reads, and %d bytes were taken from the command, want at most %d", n, mostUnread)
		}
		pause(e.opts.limits.settle)
		return written() == n
	})
	if err := p.Signal(e.context(t), workspace.SignalKill); err != nil {
		t.Errorf("stop the command: %v", err)
	}
	opened()
	if res, err := e.wait(t, p, "the command, killed"); err != nil || res.ExitCode != 128+9 {
		t.Errorf("the command, killed: %s, want exit code 137", outcome(res, err))
	}
}
