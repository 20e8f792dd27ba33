package conformance

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func timeoutChecks() []check {
	return []check{
		{name: "C5_TimeoutStopsTheTree", needs: commands, run: checkTimeoutTree},
		{name: "C5_TimeoutStopsAForkStorm", needs: commands, run: checkTimeoutStorm},
		{name: "C5_TermComesFirst", needs: commands, run: checkTerm},
		{name: "C5_KillFollows", needs: commands, run: checkKill},
		{name: "C5_ErrorKeepsTheBeginnings", needs: commands, run: checkTimeoutPartial},
		{name: "C5_StartedCommandsTimeOutToo", needs: commands, run: checkStartedTimeout},
		{name: "C5_ZeroIsNone", needs: commands, run: checkZeroTimeout},
		{name: "C5_NegativeIsInvalid", needs: commands, run: checkNegativeTimeout},
		{name: "C5_CreatingDoesNotCount", needs: commands, hooks: hooks(needSlowCreates), run: checkSlowCreate},
		{name: "C5_TimeoutAppliesAfterAttach", needs: commands, run: checkAttachedTimeout},
	}
}

func cancelChecks() []check {
	return []check{
		{name: "C6_CancelStopsTheTree", needs: commands, run: checkCancelTree},
		{name: "C6_DeadlineIsNoTimeoutError", needs: commands, run: checkDeadline},
		{name: "C6_CancelledBeforehandStartsNothing", needs: commands, run: checkCancelledBefore},
	}
}

const (
	// shortTimeout is for a command that is ready before it: it begins when
	// the command is asked for, so a busy machine may use it up.
	shortTimeout = 2 * time.Second
	// stopTime is what a stop may take by the contract: TERM, KILL, and what
	// cannot be killed.
	stopTime = workspace.StopGrace + 2*time.Second
)

// escapes are the ways in which a descendant gets away from its parent: a new
// session, a double fork, an environment without marks, deafness to TERM.
func escapes() []string { return []string{"child", "setsid", "double", "noenv", "deaf"} }

// wantTimeout expects a *TimeoutError and returns what it keeps.
func wantTimeout(t testing.TB, what string, res *workspace.Result, err error, timeout time.Duration) beginnings {
	t.Helper()
	var late *workspace.TimeoutError
	if !errors.As(err, &late) {
		t.Fatalf("%s: %s, want a *TimeoutError", what, outcome(res, err))
	}
	if late.Timeout != timeout || late.Ceiling {
		t.Errorf("%s: the error tells a timeout of %v (ceiling: %v), want %v, its own", what, late.Timeout, late.Ceiling, timeout)
	}
	if late.Survivors != "" {
		t.Errorf("%s: not stopped: %s", what, late.Survivors)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%s: the error also looks like a context's, whose own did not end: %v", what, err)
	}
	return beginnings{late.Stdout, late.Stderr}
}

// timed runs a command that must run into its timeout, and checks that it did
// so neither early nor late.
func (e *env) timed(t testing.TB, ws workspace.Workspace, cmd workspace.Command, what string) beginnings {
	t.Helper()
	began := time.Now()
	res, err := e.runIn(t, ws, cmd)
	took := time.Since(began)
	kept := wantTimeout(t, what, res, err, cmd.Timeout)
	if most := cmd.Timeout + stopTime + e.opts.limits.slack; took < cmd.Timeout || took > most {
		t.Errorf("%s: stopped after %v, want %v to %v", what, took.Round(time.Millisecond), cmd.Timeout, most)
	}
	return kept
}

func checkTimeoutTree(t testing.TB, e *env) {
	var pids string
	e.timedWhenReady(t, "a tree with children that got away", func() workspace.Command {
		pids = e.pids(t)
		return e.cmd(t, append([]string{"tree", pids}, escapes()...)...)
	}, saysReady)
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
}

func saysReady(kept beginnings) bool { return string(kept.stdout) == "ready\n" }

// longestTimeout is where a machine is too busy to tell anything.
const longestTimeout = 40 * time.Second

// timedWhenReady is timed of a command that must have come to some point
// before its timeout: on a busy machine it gets more time.
func (e *env) timedWhenReady(t testing.TB, what string, command func() workspace.Command, ready func(beginnings) bool) beginnings {
	t.Helper()
	for timeout := shortTimeout; ; timeout *= 4 {
		cmd := command()
		cmd.Timeout = timeout
		kept := e.timed(t, e.shared(t), cmd, what)
		if ready(kept) || timeout*4 > longestTimeout {
			return kept
		}
	}
}

func checkTimeoutStorm(t testing.TB, e *env) {
	pids := e.pids(t)
	cmd := e.cmd(t, "storm", pids)
	cmd.Timeout = shortTimeout / 2
	e.timed(t, e.shared(t), cmd, "a storm of detached children")
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
}

func checkTerm(t testing.TB, e *env) {
	var mark string
	e.timedWhenReady(t, "a command that ends well on TERM", func() workspace.Command {
		mark = join(e.dir(t), "mark")
		return e.cmd(t, "trap", mark)
	}, saysReady)
	if !e.exists(t, mark) {
		t.Error("the command was not given the time to act on TERM")
	}
}

func checkKill(t testing.TB, e *env) {
	var pids string
	e.timedWhenReady(t, "a command that does not hear TERM", func() workspace.Command {
		pids = e.pids(t)
		return e.cmd(t, "tree", pids, "self-deaf", "deaf")
	}, saysReady)
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
}

func checkTimeoutPartial(t testing.TB, e *env) {
	for _, n := range []int{1000, 150_000} {
		more := n + 500 // so that each stream is known
		want, wantErr := pattern.Bytes(min(n, workspace.PartialOutput)), pattern.Bytes(min(more, workspace.PartialOutput))
		kept := e.timedWhenReady(t, "a command that writes and then waits", func() workspace.Command {
			return e.cmd(t, "dump", strconv.Itoa(n), strconv.Itoa(more))
		}, func(kept beginnings) bool { return len(kept.stdout) > 0 && len(kept.stderr) > 0 })
		if !bytes.Equal(kept.stdout, want) {
			t.Errorf("of %d bytes on stdout the error keeps %s", n, difference(kept.stdout, want))
		}
		if !bytes.Equal(kept.stderr, wantErr) {
			t.Errorf("of %d bytes on stderr the error keeps %s", more, difference(kept.stderr, wantErr))
		}
	}
}

func checkStartedTimeout(t testing.TB, e *env) {
	pids := e.pids(t)
	cmd := e.cmd(t, "tree", pids, "setsid")
	cmd.Timeout = 3 * shortTimeout // it must be ready before
	p := e.started(t, e.context(t), e.shared(t), cmd)
	res, err := e.wait(t, p, "a started command with a timeout")
	wantTimeout(t, "a started command", res, err, cmd.Timeout)
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped, and %d processes are left", len(left))
	}
	if _, again := e.wait(t, p, "a second Wait"); !errors.Is(again, err) && again.Error() != err.Error() {
		t.Errorf("Wait said %v, and then %v", err, again)
	}
}

func checkZeroTimeout(t testing.TB, e *env) {
	cmd := e.cmd(t, "sleep", "1500ms")
	cmd.Timeout = 0
	if res, err := e.run(t, cmd); err != nil || res.ExitCode != 0 {
		t.Errorf("a command of 1.5 s with a timeout of zero: %s, want exit code 0", outcome(res, err))
	}
}

func checkNegativeTimeout(t testing.TB, e *env) {
	mark := join(e.dir(t), "mark")
	for _, timeout := range []time.Duration{-1, -time.Hour} {
		cmd := e.cmd(t, "touch", mark)
		cmd.Timeout = timeout
		res, err := e.run(t, cmd)
		if err == nil {
			t.Errorf("a timeout of %v: %s, want %v", timeout, outcome(res, err), workspace.ErrInvalid)
		} else {
			wantInvalid(t, "a negative timeout", err)
		}
	}
	if e.exists(t, mark) {
		t.Error("a command with a negative timeout was started")
	}
}

func checkSlowCreate(t testing.TB, e *env) {
	const timeout = 3 * time.Second
	if e.opts.ProbePath == "" {
		e.notChecked(t, "needs Options.ProbePath: the first operation must be a command")
		return
	}
	e.opts.SlowCreates(t, timeout+time.Second)
	ws := e.open(t, e.opts.Host)
	cmd := workspace.Command{Args: []string{e.opts.ProbePath, "exit", "0"}, Timeout: timeout}
	if res, err := e.runIn(t, ws, cmd); err != nil || res.ExitCode != 0 {
		t.Errorf("a command with a timeout of %v whose workspace took longer to create: %s, want exit code 0", timeout, outcome(res, err))
	}
}

func checkAttachedTimeout(t testing.TB, e *env) {
	ref, _ := e.shared(t).Ref()
	cmd := e.cmd(t, "sleep", "1m")
	cmd.Timeout = shortTimeout / 2
	e.timed(t, e.attach(t, e.opts.Host, ref), cmd, "a command of an attached handle")
}

// cancelled starts a tree, ends its context and returns what Wait says.
func (e *env) cancelled(t testing.TB, ctx context.Context, cancel func(), pids string) error { //nolint:revive // t first, as everywhere here
	t.Helper()
	p := e.started(t, ctx, e.shared(t), e.cmd(t, append([]string{"tree", pids}, escapes()...)...)) //nolint:contextcheck // ctx is the command's alone
	cancel()
	<-ctx.Done()
	began := time.Now()
	res, err := e.wait(t, p, "a command whose context ended")
	if took, most := time.Since(began), stopTime+e.opts.limits.slack; took > most {
		t.Errorf("the call returned %v after its context ended, want %v at most", took, most)
	}
	if err == nil {
		t.Fatalf("a command whose context ended: %s, want the context's error", outcome(res, err))
	}
	var late *workspace.TimeoutError
	if errors.As(err, &late) {
		t.Errorf("a context ended, and the error is a *TimeoutError, which is the command's own: %v", err)
	}
	e.eventually(t, "all that the command started is stopped", func() bool { return len(e.alive(t, pids)) == 0 }) //nolint:contextcheck // ctx has ended
	return err
}

func checkCancelTree(t testing.TB, e *env) {
	pids := e.pids(t)
	ctx, cancel := context.WithCancel(e.context(t))
	defer cancel()
	wantError(t, "a cancelled command", e.cancelled(t, ctx, cancel, pids), context.Canceled)
	// The same of Run.
	ctx, cancel = context.WithTimeout(e.context(t), shortTimeout/2)
	defer cancel()
	ws, cmd := e.shared(t), e.cmd(t, "sleep", "1m")
	a := within(t, e.opts.limits.patience, "run with a context that ends", func() answer {
		res, err := ws.Run(ctx, cmd)
		return answer{res, err}
	})
	if a.err == nil {
		t.Fatalf("run with a context that ended: %s, want the context's error", outcome(a.res, a.err))
	}
	wantError(t, "run with a context that ends", a.err, context.DeadlineExceeded)
}

func checkDeadline(t testing.TB, e *env) {
	pids := e.pids(t)
	ctx, cancel := context.WithTimeout(e.context(t), shortTimeout)
	defer cancel()
	cmd := e.cmd(t, "tree", pids)
	cmd.Timeout = time.Hour
	p := e.started(t, ctx, e.shared(t), cmd)
	res, err := e.wait(t, p, "a command whose context expired")
	if err == nil {
		t.Fatalf("a command whose context expired: %s, want its error", outcome(res, err))
	}
	wantError(t, "a command whose context expired", err, context.DeadlineExceeded)
	var late *workspace.TimeoutError
	if errors.As(err, &late) {
		t.Errorf("the context expired, and the error is a *TimeoutError, which is the command's own: %v", err)
	}
}

func checkCancelledBefore(t testing.TB, e *env) {
	mark := join(e.dir(t), "mark")
	ws, cmd := e.shared(t), e.cmd(t, "touch", mark)
	ctx, cancel := context.WithCancel(e.context(t))
	cancel()
	a := within(t, e.opts.limits.patience, "run with a context that ended before", func() answer {
		res, err := ws.Run(ctx, cmd)
		return answer{res, err}
	})
	if a.err == nil {
		t.Errorf("run with a context that ended before: %s, want its error", outcome(a.res, a.err))
	} else {
		wantError(t, "run with a context that ended before", a.err, context.Canceled)
	}
	pause(e.opts.limits.settle)
	if e.exists(t, mark) {
		t.Error("a command whose context ended before was started")
	}
}
