package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// broken is how a stream ends whose plugin dies.
func broken() error { return status.Error(codes.Unavailable, "the connection broke") }

// lostSight is a plugin that lives, and cannot reach the workspace for a moment.
func lostSight() error {
	return wire.ToStatus(fmt.Errorf("the engine does not answer: %w", workspace.ErrTransient))
}

func attachedAt(stdout, stderr, stdin int64) *berthv1.RunResponse {
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Attached{Attached: &berthv1.RunAttached{StdoutOffset: stdout, StderrOffset: stderr, StdinTaken: stdin}}}
}

// durable is a plugin whose runs outlive their streams: f is asked for each
// stream of a run, the first one being number zero, with what opened it.
func durable(f func(n int, first *berthv1.RunRequest, stream runStream) error) *raw {
	var streams atomic.Int64
	serve := func(stream runStream) error {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		return f(int(streams.Add(1))-1, msg, stream)
	}
	return &raw{run: serve, attachRun: serve, features: []string{"commands", "attach-run"}}
}

// acknowledged receives until the host has said that it took the outcome.
func acknowledged(t testing.TB, stream runStream) *berthv1.RunTaken {
	t.Helper()
	for {
		msg, err := stream.Recv()
		if err != nil {
			t.Errorf("the outcome was not taken: %v", err)
			return nil
		}
		if msg.GetTaken().GetOutcome() {
			return msg.GetTaken()
		}
	}
}

func TestB3_ARunGoesOnWhereItsStreamBroke(t *testing.T) {
	for name, end := range map[string]func() error{"the connection": broken, "for the plugin": lostSight} {
		t.Run(name, func(t *testing.T) {
			done := make(chan *berthv1.RunTaken, 1)
			p := durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
				switch n {
				case 0:
					if first.GetStart() == nil {
						t.Errorf("first %v", first)
					}
					if err := send(stream, started(), stdout(0, "one "), stderr(0, "e")); err != nil {
						return err
					}
				case 1:
					a := first.GetAttach()
					if a.GetStdoutOffset() != 4 || a.GetStderrOffset() != 1 || a.GetRunId() == "" || string(a.GetWorkspace().GetIncarnation()) != "first" {
						t.Errorf("attach %v", a)
					}
					if err := send(stream, attachedAt(0, 0, 0), started(), stdout(4, "two ")); err != nil {
						return err
					}
				case 2:
					if err := send(stream, attachedAt(8, 1, 0), started(), stdout(8, "three"), stderr(1, "f"), exited(3, 13, 2)); err != nil {
						return err
					}
					done <- acknowledged(t, stream)
					return nil
				}
				return end()
			})
			var out bytes.Buffer
			cmd := command()
			cmd.Stdout = &out
			res, err := newWorkspace(t, p).Run(t.Context(), cmd)
			if err != nil || res.ExitCode != 3 || out.String() != "one two three" || string(res.Stderr) != "ef" {
				t.Errorf("%+v, %q, %v", res, out.String(), err)
			}
			if taken := <-done; taken.GetStdoutOffset() != 13 || taken.GetStderrOffset() != 2 {
				t.Errorf("taken %v", taken)
			}
		})
	}
}

func TestB3_RunsOfOtherWorkspacesEndWithTheirStream(t *testing.T) {
	p := runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "x")); err != nil {
			return err
		}
		return broken()
	})
	_, err := newWorkspace(t, p).Run(t.Context(), command())
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || !plug.MayHaveExecuted {
		t.Error(err)
	}
}

// TestB3_StdinIsSentAgain: what a plugin had not given to the command when it
// died is sent to the next one, and nothing else.
func TestB3_StdinIsSentAgain(t *testing.T) {
	input := pseudoRandom(3 << 20)
	var got []byte
	take := func(stream runStream, most int) (more bool, _ error) {
		for len(got) < most {
			msg, err := stream.Recv()
			if err != nil {
				return false, err
			}
			switch {
			case msg.GetStdin() != nil:
				if msg.GetStdin().GetOffset() != int64(len(got)) {
					return false, fmt.Errorf("stdin at %d, not %d", msg.GetStdin().GetOffset(), len(got))
				}
				got = append(got, msg.GetStdin().GetData()...)
				err := send(stream, &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: &berthv1.RunStdinTaken{Offset: int64(len(got))}}})
				if err != nil {
					return false, err
				}
			case msg.GetStdinEnd() != nil:
				return false, nil
			}
		}
		return true, nil
	}
	p := durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
		if n > 0 {
			if err := send(stream, attachedAt(0, 0, int64(len(got)))); err != nil {
				return err
			}
		}
		if err := send(stream, started()); err != nil {
			return err
		}
		before := len(got)
		more, err := take(stream, len(got)+600_000)
		if err != nil {
			return err
		}
		if more {
			if len(got) == before {
				t.Error("nothing was sent again")
			}
			// The command took a part of this without a word, and the rest is lost.
			for i := range 3 {
				msg, err := stream.Recv()
				if err != nil {
					return err
				}
				if i == 0 {
					got = append(got, msg.GetStdin().GetData()[:1000]...)
				}
			}
			return broken()
		}
		return send(stream, exited(0, 0, 0))
	})
	cmd := command()
	cmd.Stdin = bytes.NewReader(input)
	if _, err := newWorkspace(t, p).Run(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, input) {
		t.Errorf("%d bytes of %d arrived, or others", len(got), len(input))
	}
}

func pseudoRandom(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestB3_WhatIsNotFoundAgainMayHaveRun(t *testing.T) {
	notThere := wire.ToStatus(fmt.Errorf("run: %w", fs.ErrNotExist))
	gone := wire.ToStatus(fmt.Errorf("the container was removed: %w", workspace.ErrUnavailable))
	for name, test := range map[string]struct {
		again func(stream runStream) error
		check func(err error) bool
	}{
		"unknown": {func(runStream) error { return notThere }, func(err error) bool {
			var plug *workspace.PluginError
			return errors.As(err, &plug) && plug.MayHaveExecuted && strings.Contains(plug.Reason, "not found again")
		}},
		"gone": {func(runStream) error { return gone }, func(err error) bool { return errors.Is(err, workspace.ErrUnavailable) }},
		"without the call": {func(runStream) error { return status.Error(codes.Unimplemented, "") }, func(err error) bool {
			var plug *workspace.PluginError
			return errors.As(err, &plug) && plug.MayHaveExecuted
		}},
		"nonsense": {func(stream runStream) error { return send(stream, started()) }, func(err error) bool {
			var plug *workspace.PluginError
			return errors.As(err, &plug) && strings.Contains(plug.Reason, "attached")
		}},
		"a gap": {func(stream runStream) error {
			return send(stream, attachedAt(10, 0, 0), started(), stdout(10, "x"), exited(0, 11, 0))
		}, func(err error) bool {
			var gap *workspace.OutputGapError
			return errors.As(err, &gap) && gap.Stdout == 6 && gap.Stderr == 0 && gap.StdoutOffset == 10 && strings.Contains(err.Error(), "6 bytes")
		}},
		"a repetition": {func(stream runStream) error { return send(stream, attachedAt(0, 0, 0), started(), stdout(0, "one ")) }, func(err error) bool {
			var plug *workspace.PluginError
			return errors.As(err, &plug) && strings.Contains(plug.Reason, "incomplete")
		}},
		"stdin that was not sent": {func(stream runStream) error { return send(stream, attachedAt(0, 0, 5)) }, func(err error) bool {
			var plug *workspace.PluginError
			return errors.As(err, &plug) && strings.Contains(plug.Reason, "stdin")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
				if n > 0 {
					return test.again(stream)
				}
				if err := send(stream, started(), stdout(0, "one ")); err != nil {
					return err
				}
				return broken()
			})
			stopped := make(chan string, 1)
			p.stopRun = func(req *berthv1.StopRunRequest) error {
				select {
				case stopped <- req.GetRunId():
				default:
				}
				return nil
			}
			cmd := command()
			cmd.Stdin = strings.NewReader("abc")
			if _, err := newWorkspace(t, p).Run(t.Context(), cmd); !test.check(err) {
				t.Errorf("%T %v", err, err)
			}
		})
	}
}

// TestB3_AStartThatWasLostIsSentAgain: the plugin died before it had handed the
// start on, so that no such run is known.
func TestB3_AStartThatWasLostIsSentAgain(t *testing.T) {
	unknown := wire.ToStatus(fmt.Errorf("run: %w", fs.ErrNotExist))
	used := wire.ToStatus(fmt.Errorf("run: %w", fs.ErrExist))
	work := func(stream runStream) error {
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if in := msg.GetStdin(); in != nil {
				return send(stream, started(), stdout(0, string(in.GetData())), exited(3, int64(len(in.GetData())), 0))
			}
		}
	}
	again := func(t *testing.T, id string, first *berthv1.RunRequest) {
		if s := first.GetStart(); s.GetRunId() != id || s.GetRepeatedAfterNs() <= 0 || string(s.GetArgs()[0]) != command().Args[0] {
			t.Errorf("sent again: %v", first)
		}
	}
	for name, test := range map[string]struct {
		then func(t *testing.T, n int, id string, first *berthv1.RunRequest, stream runStream) error
		lost bool
	}{
		"and runs": {func(t *testing.T, n int, id string, first *berthv1.RunRequest, stream runStream) error {
			if n == 1 {
				return unknown
			}
			again(t, id, first)
			return work(stream)
		}, false},
		"and is lost again": {func(t *testing.T, n int, id string, first *berthv1.RunRequest, stream runStream) error {
			switch {
			case n%2 == 1:
				return unknown
			case n == 2:
				return lostSight()
			}
			again(t, id, first)
			return work(stream)
		}, false},
		"and had arrived late": {func(t *testing.T, n int, id string, first *berthv1.RunRequest, stream runStream) error {
			switch n {
			case 1:
				return unknown
			case 2:
				again(t, id, first)
				return used
			}
			if first.GetAttach().GetRunId() != id {
				t.Errorf("not attached: %v", first)
			}
			if err := send(stream, attachedAt(0, 0, 0)); err != nil {
				return err
			}
			return work(stream)
		}, false},
		"to one that does not know": {func(_ *testing.T, _ int, _ string, _ *berthv1.RunRequest, _ runStream) error { return unknown }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var id atomic.Value
			p := durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
				if n > 0 {
					return test.then(t, n, id.Load().(string), first, stream)
				}
				id.Store(first.GetStart().GetRunId())
				if first.GetStart().GetRepeatedAfterNs() != 0 {
					t.Errorf("the first start: %v", first)
				}
				for { // what was heard of stdin is lost too
					msg, err := stream.Recv()
					if err != nil || msg.GetStdin() != nil {
						return broken()
					}
				}
			})
			cmd := command()
			cmd.Stdin = strings.NewReader("abc")
			res, err := newWorkspace(t, p).Run(t.Context(), cmd)
			var plug *workspace.PluginError
			switch {
			case test.lost:
				if !errors.As(err, &plug) || !plug.MayHaveExecuted || !strings.Contains(plug.Reason, "not found again") {
					t.Errorf("%T %v", err, err)
				}
			case err != nil || res.ExitCode != 3 || string(res.Stdout) != "abc":
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

func TestSignalsOfAStreamThatBrokeAreUnknown(t *testing.T) {
	signalled, again := newGate(t), newGate(t)
	p := durable(func(n int, _ *berthv1.RunRequest, stream runStream) error {
		messages := []*berthv1.RunResponse{attachedAt(0, 0, 0), started()}
		if n == 0 {
			messages = messages[1:]
		} else {
			<-again.ch
		}
		if err := send(stream, messages...); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if sig := msg.GetSignal(); sig != nil {
				if n == 0 {
					return broken()
				}
				if sig.GetName() != "USR1" {
					t.Errorf("signal %s came twice", sig.GetName())
				}
				err := send(stream, &berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: &berthv1.RunSignalResult{Sequence: sig.GetSequence()}}}, exited(0, 0, 0))
				return err
			}
		}
	})
	proc, err := newWorkspace(t, p).Start(t.Context(), command())
	if err != nil {
		t.Fatal(err)
	}
	if err := proc.Signal(t.Context(), workspace.SignalTerminate); err == nil || errors.Is(err, os.ErrProcessDone) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("a signal whose answer was lost: %v", err)
	}
	errs := make(chan error, 1)
	go func() { errs <- proc.Signal(t.Context(), workspace.SignalUser1) }()
	signalled.open()
	again.open()
	if err := <-errs; err != nil {
		t.Errorf("a signal of the time between: %v", err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Error(err)
	}
}

// TestC10_AWindowThatWasFullMovesOnOverTheNextStream: what the plugin did not
// hear as taken is told again.
func TestC10_AWindowThatWasFullMovesOnOverTheNextStream(t *testing.T) {
	big := strings.Repeat("x", wire.ChunkSize)
	p := durable(func(n int, first *berthv1.RunRequest, stream runStream) error {
		at := int64(0)
		fill := func() error {
			for ; at < wire.RunWindow; at += int64(len(big)) {
				if err := send(stream, stdout(at, big)); err != nil {
					return err
				}
			}
			return nil
		}
		if n == 0 {
			if err := send(stream, started()); err != nil {
				return err
			}
			if err := fill(); err != nil {
				return err
			}
			return broken() // and whatever was told as taken is lost
		}
		if err := send(stream, attachedAt(0, 0, 0), started()); err != nil {
			return err
		}
		at = first.GetAttach().GetStdoutOffset()
		if err := fill(); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetTaken().GetStdoutOffset() == wire.RunWindow {
				return send(stream, stdout(at, "end"), exited(0, at+3, 0))
			}
		}
	})
	cmd := command()
	cmd.Stdout, cmd.Stderr, cmd.OutputLimit = io.Discard, io.Discard, workspace.NoOutputLimit
	if _, err := newWorkspace(t, p).Run(t.Context(), cmd); err != nil {
		t.Error(err)
	}
}
