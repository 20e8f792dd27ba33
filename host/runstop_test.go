package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestRunKeepsTheBeginningsOfAStoppedCommand(t *testing.T) {
	long := strings.Repeat("y", workspace.PartialOutput+100)
	ws := newWorkspace(t, runner(func(start *berthv1.RunStart, stream runStream) error {
		if left := time.Duration(start.GetTimeoutNs()); left <= 0 || left > time.Hour || start.GetFullTimeoutNs() != int64(time.Hour) {
			t.Errorf("timeout %v of %v", left, time.Duration(start.GetFullTimeoutNs()))
		}
		return send(stream, started(), stdout(0, long), stderr(0, "e"),
			ended(&workspace.TimeoutError{Timeout: time.Hour, Survivors: "pid 7"}, int64(len(long))))
	}))
	for name, out := range map[string]io.Writer{"collected": nil, "streamed": io.Discard} {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.Timeout, cmd.Stdout = time.Hour, out
			_, err := ws.Run(t.Context(), cmd)
			var timeout *workspace.TimeoutError
			if !errors.As(err, &timeout) || string(timeout.Stdout) != long[:workspace.PartialOutput] || string(timeout.Stderr) != "e" || timeout.Survivors != "pid 7" {
				t.Errorf("%.200v", err)
			}
		})
	}
}

func TestC5_ATimeoutFiresEvenIfThePluginKeepsSilent(t *testing.T) {
	p := runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "begun")); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	})
	ws := newWorkspace(t, p)
	cmd := command()
	cmd.Timeout = 50 * time.Millisecond
	_, err := ws.Run(t.Context(), cmd)
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || !strings.Contains(timeout.Survivors, "did not confirm") || string(timeout.Stdout) != "begun" {
		t.Error(err)
	}
}

func TestC6_ACancelledCallerGetsItsContextsErrorAndTheCommandIsStopped(t *testing.T) {
	stopped := make(chan struct{}, 1)
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if stream.Context().Err() != nil {
			t.Error("the stream has the caller's context")
		}
		if err := send(stream, started()); err != nil {
			return err
		}
		msg, err := stream.Recv()
		if err != nil || msg.GetStop() == nil {
			t.Errorf("instead of a stop: %v, %v", msg, err)
		}
		stopped <- struct{}{}
		return send(stream, ended(fmt.Errorf("stopped: %w", context.Canceled), 0))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ws.Start(ctx, command())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-stopped
	if _, again := p.Wait(); !errors.Is(again, context.Canceled) {
		t.Errorf("a second wait: %v", again)
	}
}

func TestC6_ACancelledCallerDoesNotWaitForASilentPlugin(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ws.Start(ctx, command())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	cancel()
	_, err = p.Wait()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not confirm") {
		t.Error(err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestC7_TheHostItselfKeepsTheOutputLimit(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "12345"), stderr(0, "abcdef")); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStop() != nil {
				return send(stream, exited(0, 5, 6))
			}
		}
	}))
	cmd := command()
	cmd.OutputLimit = 8
	_, err := ws.Run(t.Context(), cmd)
	var limit *workspace.OutputLimitError
	if !errors.As(err, &limit) || limit.Limit != 8 || string(limit.Stdout) != "12345" || string(limit.Stderr) != "abc" {
		t.Errorf("%v: %q %q", err, limit.Stdout, limit.Stderr)
	}
}

// TestC5_WhatWasNotStoppedIsTold also when the host itself asked for the stop.
func TestC5_WhatWasNotStoppedIsTold(t *testing.T) {
	const left = "pid 9 of another user, in a sentence that is far longer than what is repeated of a mere name"
	for name, test := range map[string]struct {
		word error
		want func(*workspace.OutputLimitError) bool
	}{
		"the plugin found it too": {&workspace.OutputLimitError{Limit: 8, Survivors: left}, func(e *workspace.OutputLimitError) bool { return e.Survivors == left }},
		"only the host did":       {fmt.Errorf("command stopped: %w; not stopped: %s", context.Canceled, left), func(*workspace.OutputLimitError) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
				if err := send(stream, started(), stdout(0, "0123456789")); err != nil {
					return err
				}
				for {
					msg, err := stream.Recv()
					if err != nil {
						return err
					}
					if msg.GetStop() != nil {
						return send(stream, ended(test.word, 10))
					}
				}
			}))
			cmd := command()
			cmd.OutputLimit = 8
			_, err := ws.Run(t.Context(), cmd)
			var limit *workspace.OutputLimitError
			if !errors.As(err, &limit) || !test.want(limit) || string(limit.Stdout) != "01234567" || !strings.Contains(err.Error(), left) || errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, errors.New("the writer is full") })
			if _, err = ws.Run(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), left) {
				t.Errorf("a writer that failed: %v", err)
			}
		})
	}
}
