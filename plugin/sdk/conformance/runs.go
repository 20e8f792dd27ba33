package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func runChecks() []check {
	found := []workspace.Feature{workspace.FeatureCommands, workspace.FeatureAttachRun}
	return []check{
		{name: "B3_ARunOutlivesThePlugin", needs: found, hooks: hooks(needRestart), run: checkRunOutlivesPlugin},
		{name: "B3_StdinOutlivesThePlugin", needs: found, hooks: hooks(needRestart), run: checkStdinOutlivesPlugin},
		{name: "B3_TimeoutOutlivesThePlugin", needs: found, hooks: hooks(needRestart), run: checkTimeoutOutlivesPlugin},
		{name: "B3_CancelOutlivesThePlugin", needs: found, hooks: hooks(needRestart), run: checkCancelOutlivesPlugin},
		{name: "B3_ADetachedRunOutlivesItsHost", needs: found, hooks: hooks(needOtherHost), run: checkDetachedOutlivesHost},
		{name: "B3_AnOutcomeIsGivenOnce", needs: found, hooks: hooks(needOtherHost), run: checkOutcomeOnce},
		{name: "B3_ARunLeftAloneIsStopped", needs: found, hooks: hooks(needOtherHost), run: checkLeftAlone},
		{name: "B3_StopRunStopsTheTree", needs: found, run: checkStopRun},
		{name: "B3_FollowingIsNotOwning", needs: found, hooks: hooks(needOtherHost), run: checkFollowing},
		{name: "B3_OneFollowsAtATime", needs: found, run: checkOneFollows},
		{name: "B3_DroppedOutputIsToldAsAGap", needs: found, hooks: hooks(needOtherHost), run: checkGap},
	}
}

const (
	// dripChunk is what the probe's drip writes at once, to each stream.
	dripChunk = 64
	// dripPause is between two chunks: short beside what a plugin takes to start.
	dripPause = 20 * time.Millisecond
	// leftAlone is when a run that nobody follows has been stopped (contract B3).
	leftAlone = 10 * time.Second
)

// drip is a command that writes n chunks.
func (e *env) drip(t testing.TB, ws workspace.Workspace, n, code int) workspace.Command {
	t.Helper()
	return e.cmdIn(t, ws, "drip", strconv.Itoa(n), dripPause.String(), strconv.Itoa(code))
}

// meter collects a stream and tells when there is enough of it.
type meter struct {
	mu    sync.Mutex
	data  []byte
	after func(n int)
}

func (m *meter) Write(b []byte) (int, error) {
	m.mu.Lock()
	m.data = append(m.data, b...)
	n := len(m.data)
	m.mu.Unlock()
	if m.after != nil {
		m.after(n)
	}
	return len(b), nil
}

func (m *meter) bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.data)
}

// start starts a command in time.
func (e *env) start(t testing.TB, ctx context.Context, ws workspace.Workspace, cmd workspace.Command) workspace.Process { //nolint:revive // t first, as everywhere here
	t.Helper()
	p, err := within2(t, e, "start "+describe(cmd), func() (workspace.Process, error) { return ws.Start(ctx, cmd) })
	if err != nil {
		t.Fatalf("start %s: %v", describe(cmd), err)
	}
	return p
}

// attachRun attaches in time.
func (e *env) attachRun(t testing.TB, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
	t.Helper()
	return within2(t, e, "attach run "+id, func() (workspace.Process, error) { return ws.AttachRun(e.context(t), id, opts) })
}

func within2[R any](t testing.TB, e *env, what string, f func() (R, error)) (R, error) {
	t.Helper()
	type both struct {
		r   R
		err error
	}
	b := within(t, e.opts.limits.patience, what, func() both { r, err := f(); return both{r, err} })
	return b.r, b.err
}

// runs returns the listed runs of a workspace.
func (e *env) runs(t testing.TB, ws workspace.Workspace) map[string]workspace.RunInfo {
	t.Helper()
	infos := map[string]workspace.RunInfo{}
	for info, err := range ws.ListRuns(e.context(t)) {
		if err != nil {
			t.Fatalf("list runs: %v", err)
		}
		infos[info.ID] = info
	}
	return infos
}

// wantPattern checks a stream from an offset on.
func wantPattern(t testing.TB, what string, got []byte, from, n int) {
	t.Helper()
	want := make([]byte, n)
	pattern.Fill(want, int64(from))
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %s", what, difference(got, want))
	}
}

// checkRunOutlivesPlugin kills the plugin twice while a command writes.
func checkRunOutlivesPlugin(t testing.TB, e *env) {
	const chunks, code = 200, 7
	ws := e.shared(t)
	first, second := make(chan struct{}), make(chan struct{})
	var stdout, stderr meter
	var one, two sync.Once
	stdout.after = func(n int) {
		if n >= dripChunk {
			one.Do(func() { close(first) })
		}
		if n >= chunks/2*dripChunk {
			two.Do(func() { close(second) })
		}
	}
	cmd := e.drip(t, ws, chunks, code)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	p := e.start(t, e.context(t), ws, cmd)
	for _, reached := range []chan struct{}{first, second} {
		e.reached(t, reached, p, "the command's output")
		e.restart(t)
	}
	res, err := e.wait(t, p, "a command whose plugin was killed twice")
	if err != nil || res.ExitCode != code {
		t.Fatalf("a command whose plugin was killed twice: %s, want exit code %d", outcome(res, err), code)
	}
	wantPattern(t, "stdout", stdout.bytes(), 0, chunks*dripChunk)
	wantPattern(t, "stderr", stderr.bytes(), 0, chunks*dripChunk)
}

// reached waits for a point in a command's life.
func (e *env) reached(t testing.TB, point <-chan struct{}, p workspace.Process, what string) {
	t.Helper()
	ended := make(chan answer, 1)
	go func() {
		res, err := p.Wait()
		ended <- answer{res, err}
	}()
	timer := time.NewTimer(e.opts.limits.patience)
	defer timer.Stop()
	select {
	case <-point:
	case a := <-ended:
		select {
		case <-point:
		default:
			t.Fatalf("%s did not come so far: %s", what, outcome(a.res, a.err))
		}
	case <-timer.C:
		t.Fatalf("%s did not come so far in %v", what, e.opts.limits.patience)
	}
}

// checkStdinOutlivesPlugin kills the plugin while input is under way in both
// directions, more than any buffer holds.
func checkStdinOutlivesPlugin(t testing.TB, e *env) {
	const size = 6 << 20
	ws := e.shared(t)
	half := make(chan struct{})
	var once sync.Once
	var stdout meter
	stdout.after = func(n int) {
		if n >= size/2 {
			once.Do(func() { close(half) })
		}
	}
	cmd := e.cmdIn(t, ws, "cat")
	killed := make(chan struct{})
	// The second half waits for the kill, so that there is something under way.
	cmd.Stdin = io.MultiReader(pattern.Reader(size/2+(64<<10)), gated{killed}, &offsetReader{at: size/2 + 64<<10, end: size})
	cmd.Stdout, cmd.Stderr, cmd.OutputLimit = &stdout, io.Discard, workspace.NoOutputLimit
	p := e.start(t, e.context(t), ws, cmd)
	e.reached(t, half, p, "the command's output")
	e.restart(t)
	close(killed)
	res, err := e.wait(t, p, "a command whose plugin was killed while it read")
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("a command whose plugin was killed while it read: %s", outcome(res, err))
	}
	wantPattern(t, "what came back", stdout.bytes(), 0, size)
}

// gated is an empty reader that waits.
type gated struct{ open <-chan struct{} }

func (g gated) Read([]byte) (int, error) {
	<-g.open
	return 0, io.EOF
}

// offsetReader is a part of the pattern.
type offsetReader struct{ at, end int64 }

func (r *offsetReader) Read(b []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), r.end-r.at))
	pattern.Fill(b[:n], r.at)
	r.at += int64(n)
	return n, nil
}

func checkTimeoutOutlivesPlugin(t testing.TB, e *env) {
	pids := e.pids(t)
	ws := e.shared(t)
	cmd := e.cmd(t, append([]string{"tree", pids}, escapes()...)...)
	cmd.Timeout = 4 * shortTimeout
	began := time.Now()
	p := e.started(t, e.context(t), ws, cmd)
	e.restart(t)
	res, err := e.wait(t, p, "a command whose timeout passes after its plugin was killed")
	took := time.Since(began)
	wantTimeout(t, "a command whose plugin was killed", res, err, cmd.Timeout)
	if most := cmd.Timeout + stopTime + e.opts.limits.slack; took < cmd.Timeout || took > most {
		t.Errorf("a command whose plugin was killed: stopped after %v, want %v to %v", took.Round(time.Millisecond), cmd.Timeout, most)
	}
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
}

// checkCancelOutlivesPlugin cancels in the moment in which there is no plugin.
func checkCancelOutlivesPlugin(t testing.TB, e *env) {
	pids := e.pids(t)
	ctx, cancel := context.WithCancel(e.context(t))
	defer cancel()
	p := e.started(t, ctx, e.shared(t), e.cmd(t, append([]string{"tree", pids}, escapes()...)...))
	e.restart(t)
	cancel()
	a := within(t, stopTime+e.opts.limits.slack, "a command that was cancelled after its plugin was killed", func() answer {
		res, err := p.Wait()
		return answer{res, err}
	})
	wantError(t, "a command that was cancelled after its plugin was killed", a.err, context.Canceled)
	e.eventually(t, "the command's processes are gone", func() bool { return len(e.alive(t, pids)) == 0 })
}

// leave closes a host without waiting for what goes on there.
func leave(t testing.TB, h workspace.Host) {
	t.Helper()
	at, cancel := context.WithCancel(t.Context())
	cancel()
	switch h := h.(type) {
	case interface {
		Shutdown(ctx context.Context) error
	}:
		_ = h.Shutdown(at) // it tells that calls were cut off
	case io.Closer:
		_ = h.Close()
	}
}

func closes(h workspace.Host) bool {
	_, ok := h.(io.Closer)
	return ok
}

// startElsewhere starts a command in a workspace of e.Host's from another host,
// which is then gone.
func (e *env) startElsewhere(t testing.TB, ws workspace.Workspace, cmd workspace.Command, ready func(workspace.Process)) (id string, ok bool) {
	t.Helper()
	ref, _ := ws.Ref()
	h := e.opts.OtherHost(t)
	if !closes(h) {
		e.notChecked(t, "the host of Options.OtherHost is no io.Closer")
		return "", false
	}
	p := e.start(t, e.context(t), e.attach(t, h, ref), cmd)
	ready(p)
	leave(t, h)
	return p.ID(), true
}

func checkDetachedOutlivesHost(t testing.TB, e *env) {
	const chunks, code = 100, 9
	ws, _ := e.created(t, e.opts.Host)
	cmd := e.drip(t, ws, chunks, code)
	cmd.Detached = true
	id, ok := e.startElsewhere(t, ws, cmd, func(workspace.Process) {})
	if !ok {
		return
	}
	info, ok := e.runs(t, ws)[id]
	if !ok || !info.Detached || len(info.Args) == 0 || info.Args[len(info.Args)-1] != strconv.Itoa(code) {
		t.Errorf("the host that started %s detached was closed, and it is listed as %+v (%v)", id, info, ok)
	}
	p, err := e.attachRun(t, ws, id, workspace.AttachOptions{})
	if err != nil {
		t.Fatalf("the host that started a detached command was closed, and it is not found again: %v", err)
	}
	res, err := e.wait(t, p, "a detached command")
	if err != nil || res.ExitCode != code {
		t.Fatalf("a detached command: %s, want exit code %d", outcome(res, err), code)
	}
	if res.RunID != id {
		t.Errorf("the result is said to be of run %q, want %q", res.RunID, id)
	}
	wantPattern(t, "stdout", res.Stdout, 0, chunks*dripChunk)
	wantPattern(t, "stderr", res.Stderr, 0, chunks*dripChunk)
}

// checkOutcomeOnce: it is kept until it was told, and not for longer.
func checkOutcomeOnce(t testing.TB, e *env) {
	const code = 5
	ws := e.shared(t)
	cmd := e.drip(t, ws, 2, code)
	cmd.Detached = true
	id, ok := e.startElsewhere(t, ws, cmd, func(workspace.Process) {})
	if !ok {
		return
	}
	e.eventually(t, "the command is listed as ended", func() bool { return e.runs(t, ws)[id].Ended })
	p, err := e.attachRun(t, ws, id, workspace.AttachOptions{})
	if err != nil {
		t.Fatalf("a command that has ended: %v", err)
	}
	if res, err := e.wait(t, p, "a command that has ended"); err != nil || res.ExitCode != code {
		t.Fatalf("a command that has ended: %s, want exit code %d", outcome(res, err), code)
	}
	// The word that it was taken is on its way.
	e.eventually(t, "the command is not listed any more", func() bool { _, listed := e.runs(t, ws)[id]; return !listed })
	_, err = e.attachRun(t, ws, id, workspace.AttachOptions{})
	wantError(t, "a run whose outcome was told", err, fs.ErrNotExist)
}

func checkLeftAlone(t testing.TB, e *env) {
	pids := e.pids(t)
	ws := e.shared(t)
	out := newLineWriter()
	cmd := e.cmd(t, append([]string{"tree", pids}, escapes()...)...)
	cmd.Stdout = out
	if _, ok := e.startElsewhere(t, ws, cmd, func(workspace.Process) { out.next(t, e, "the command says ready") }); !ok {
		return
	}
	left := time.Now()
	for alive := e.alive(t, pids); len(alive) > 0; alive = e.alive(t, pids) {
		if alone := time.Since(left); alone > leftAlone+stopTime+e.opts.limits.slack {
			t.Fatalf("nobody has followed a command for %v, and %d of its processes live", alone.Round(time.Second), len(alive))
		}
		pause(10 * pollEvery)
	}
}

func checkStopRun(t testing.TB, e *env) {
	pids := e.pids(t)
	ws := e.shared(t)
	p := e.started(t, e.context(t), ws, e.cmd(t, append([]string{"tree", pids}, escapes()...)...))
	stop := func(id string) error {
		return within(t, stopTime+e.opts.limits.slack, "stop run "+id, func() error { return ws.StopRun(e.context(t), id) })
	}
	if err := stop(p.ID()); err != nil {
		t.Errorf("stop a run: %v", err)
	}
	if res, err := e.wait(t, p, "a run that was stopped"); err == nil {
		t.Errorf("a run that was stopped: %s, want an error", outcome(res, err))
	}
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
	wantError(t, "stop a run that never was", stop("run-"+strings.TrimPrefix(workspace.NewToken(), "berth-")), fs.ErrNotExist)
	wantInvalid(t, "stop a run by what is no id", stop("no id"))
}

// checkFollowing: whoever only follows a command does not end it.
func checkFollowing(t testing.TB, e *env) {
	pids := e.pids(t)
	ws := e.shared(t)
	out := newLineWriter()
	cmd := e.cmd(t, "tree", pids, "child")
	cmd.Detached, cmd.Stdout = true, out
	id, ok := e.startElsewhere(t, ws, cmd, func(workspace.Process) { out.next(t, e, "the command says ready") })
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(e.context(t))
	defer cancel()
	p, err := within2(t, e, "attach run "+id, func() (workspace.Process, error) { return ws.AttachRun(ctx, id, workspace.AttachOptions{}) })
	if err != nil {
		t.Fatalf("attach a detached command: %v", err)
	}
	cancel()
	a := within(t, e.opts.limits.slack, "a following that was cancelled", func() answer {
		res, err := p.Wait()
		return answer{res, err}
	})
	wantError(t, "a following that was cancelled", a.err, context.Canceled)
	pause(e.opts.limits.settle)
	if alive := e.alive(t, pids); len(alive) != 2 {
		t.Errorf("a following was cancelled, and of the command's two processes %d live", len(alive))
	}
	if err := ws.StopRun(e.context(t), id); err != nil {
		t.Errorf("stop it: %v", err)
	}
}

// checkOneFollows: who attaches takes the run over, with all of its output.
func checkOneFollows(t testing.TB, e *env) {
	const chunks, code = 100, 6
	ws := e.shared(t)
	first := make(chan struct{})
	var once sync.Once
	cmd := e.drip(t, ws, chunks, code)
	cmd.Stdout = &meter{after: func(int) { once.Do(func() { close(first) }) }}
	before := e.start(t, e.context(t), ws, cmd)
	e.reached(t, first, before, "the command's output")
	p, err := e.attachRun(t, ws, before.ID(), workspace.AttachOptions{})
	if err != nil {
		t.Fatalf("attach a command that its host still follows: %v", err)
	}
	if res, err := e.wait(t, before, "who followed the command before"); err == nil {
		t.Errorf("who followed the command before: %s, want an error", outcome(res, err))
	}
	res, err := e.wait(t, p, "a command that was taken over")
	if err != nil || res.ExitCode != code {
		t.Fatalf("a command that was taken over: %s, want exit code %d", outcome(res, err), code)
	}
	wantPattern(t, "stdout", res.Stdout, 0, chunks*dripChunk)
}

// checkGap has a command write more than is kept, and nobody there.
func checkGap(t testing.TB, e *env) {
	const size = 3 << 20
	ws, _ := e.created(t, e.opts.Host)
	begin := join(e.workingDir(t, ws), "begin")
	cmd := e.cmdIn(t, ws, "await", begin, strconv.Itoa(size))
	cmd.Detached = true
	id, ok := e.startElsewhere(t, ws, cmd, func(workspace.Process) {})
	if !ok {
		return
	}
	if res, err := e.runIn(t, ws, e.cmdIn(t, ws, "touch", begin)); err != nil || res.ExitCode != 0 {
		t.Fatalf("let the command begin: %s", outcome(res, err))
	}
	e.eventually(t, "the command has written it all", func() bool { return e.runs(t, ws)[id].Ended })
	_, err := e.attachRun(t, ws, id, workspace.AttachOptions{Stdout: io.Discard, Stderr: io.Discard})
	var gap *workspace.OutputGapError
	if !errors.As(err, &gap) || gap.Stdout <= 0 || gap.Stdout != gap.StdoutOffset || gap.Stdout >= size {
		t.Fatalf("output that was dropped: %v, want an *OutputGapError that tells how much", err)
	}
	var told *workspace.OutputGapError
	p, err := e.attachRun(t, ws, id, workspace.AttachOptions{OnGap: func(g *workspace.OutputGapError) error { told = g; return nil }})
	if err != nil {
		t.Fatalf("attach to what is left: %v", err)
	}
	res, err := e.wait(t, p, "a command whose first output was dropped")
	if err != nil || res.ExitCode != 0 || told == nil {
		t.Fatalf("a command whose first output was dropped: %s, told %v", outcome(res, err), told)
	}
	wantPattern(t, "what was left of stdout", res.Stdout, int(told.StdoutOffset), size-int(told.StdoutOffset))
}
