package sdk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestC1_WhatIsInvalidIsNotStarted(t *testing.T) {
	arg := func(args ...string) [][]byte { return wire.FromBytesList(args) }
	env := func(name, value string) []*berthv1.EnvVar {
		return []*berthv1.EnvVar{{Name: []byte(name), Value: []byte(value)}}
	}
	for name, test := range map[string]struct {
		start *berthv1.RunStart
		want  error
	}{
		"no command":      {&berthv1.RunStart{Args: arg()}, workspace.ErrInvalid},
		"empty script":    {&berthv1.RunStart{Script: []byte("")}, workspace.ErrInvalid},
		"both":            {&berthv1.RunStart{Args: arg("a"), Script: []byte("b")}, workspace.ErrInvalid},
		"args and empty":  {&berthv1.RunStart{Args: arg("a"), Script: []byte("")}, workspace.ErrInvalid},
		"empty program":   {&berthv1.RunStart{Args: arg("", "x")}, workspace.ErrInvalid},
		"NUL in argument": {&berthv1.RunStart{Args: arg("a", "b\x00")}, workspace.ErrInvalid},
		"NUL in script":   {&berthv1.RunStart{Script: []byte("a\x00")}, workspace.ErrInvalid},
		"NUL in dir":      {&berthv1.RunStart{Args: arg("a"), Dir: []byte("a\x00")}, workspace.ErrInvalid},
		"no env name":     {&berthv1.RunStart{Args: arg("a"), Env: env("", "v")}, workspace.ErrInvalid},
		"= in env name":   {&berthv1.RunStart{Args: arg("a"), Env: env("a=b", "v")}, workspace.ErrInvalid},
		"NUL in value":    {&berthv1.RunStart{Args: arg("a"), Env: env("A", "s3cret\x00")}, workspace.ErrInvalid},
		"timeout":         {&berthv1.RunStart{Args: arg("a"), TimeoutNs: -1}, workspace.ErrInvalid},
		"full timeout":    {&berthv1.RunStart{Args: arg("a"), FullTimeoutNs: -1}, workspace.ErrInvalid},
		"limit":           {&berthv1.RunStart{Args: arg("a"), OutputLimit: -1}, workspace.ErrInvalid},
		"run id":          {&berthv1.RunStart{Args: arg("a"), RunId: "No"}, workspace.ErrInvalid},
		"long run id":     {&berthv1.RunStart{Args: arg("a"), RunId: strings.Repeat("a", 64)}, workspace.ErrInvalid},
		"workspace id":    {&berthv1.RunStart{Args: arg("a"), Workspace: key("a/b")}, workspace.ErrInvalid},
		"detached":        {&berthv1.RunStart{Args: arg("a"), Detached: true}, errors.ErrUnsupported},
	} {
		ws := starting(nil)
		ws.start = func(context.Context, Command) (Process, error) {
			t.Errorf("%s: started", name)
			return nil, errors.New("started")
		}
		if test.start.Args == nil && test.start.Script == nil {
			test.start.Args = [][]byte{} // startRun leaves it be
		}
		_, err := startRun(t, t.Context(), serveProvider(t, providing(ws)), test.start).wait()
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRunWithoutTheFeature(t *testing.T) {
	for name, test := range map[string]struct {
		ws    Workspace
		start *berthv1.RunStart
	}{
		"commands": {newMemory(), &berthv1.RunStart{}},
		"shell":    {&runner{bare: newBare()}, &berthv1.RunStart{Script: []byte("true")}},
	} {
		_, err := startRun(t, t.Context(), serveProvider(t, providing(test.ws)), test.start).wait()
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRunBeginsWithStart(t *testing.T) {
	client := serveProvider(t, providing(starting(newFakeProcess())))
	stream, err := client.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(stopMessage()); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	mustBe(t, fromCall(err), workspace.ErrInvalid)
}

func TestAttachRunAndListRunsAreUnsupported(t *testing.T) {
	client := serveProvider(t, providing(starting(newFakeProcess())))
	attach, err := client.AttachRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := attach.Send(attachMessage("run-1", 0, 0)); err != nil {
		t.Fatal(err)
	}
	_, err = attach.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	list, err := client.ListRuns(t.Context(), &berthv1.ListRunsRequest{Workspace: key("ws")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = list.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}

// A command that writes byte by byte costs no more memory than one that does not.
func TestOutboxPutsCrumbsTogether(t *testing.T) {
	w, o := newWindow(), newOutbox()
	for i := range 300_000 {
		room := w.reserve(10)
		w.queue(o, i/100_000%2, room, []byte{byte(i)})
	}
	if n := len(o.messages); n != 3 {
		t.Errorf("%d messages", n)
	}
	var got [2]int
	for m, _ := o.next(nil); m != nil; m, _ = o.next(nil) {
		for which, chunk := range [2]*berthv1.RunOutput{m.GetStdout(), m.GetStderr()} {
			if chunk != nil {
				if int(chunk.GetOffset()) != got[which] {
					t.Errorf("%s at %d, want %d", outputNames[which], chunk.GetOffset(), got[which])
				}
				got[which] += len(chunk.GetData())
			}
		}
	}
	if got != [2]int{200_000, 100_000} {
		t.Errorf("got %v", got)
	}
}

// Nor does one that writes by turns to both outputs.
func TestOutboxPutsCrumbsOfBothOutputsTogether(t *testing.T) {
	w, o := newWindow(), newOutbox()
	var want, got [2][]byte
	for i := range 200_000 {
		room := w.reserve(1)
		w.queue(o, i%2, room, []byte{byte(i / 2)})
		want[i%2] = append(want[i%2], byte(i/2))
		if i == 100 { // what is on its way must not change
			m, _ := o.next(nil)
			got[stdout] = append(got[stdout], m.GetStdout().GetData()...)
		}
	}
	if n := len(o.messages); n > 4 {
		t.Errorf("%d messages", n)
	}
	for m, _ := o.next(nil); m != nil; m, _ = o.next(nil) {
		for which, chunk := range [2]*berthv1.RunOutput{m.GetStdout(), m.GetStderr()} {
			if chunk != nil && int(chunk.GetOffset()) != len(got[which]) {
				t.Errorf("%s at %d, want %d", outputNames[which], chunk.GetOffset(), len(got[which]))
			}
			got[which] = append(got[which], chunk.GetData()...)
		}
	}
	for which := range want {
		if !bytes.Equal(got[which], want[which]) {
			t.Errorf("%s is not what was written", outputNames[which])
		}
	}
}

func attachMessage(runID string, stdoutOffset, stderrOffset int64) *berthv1.RunRequest {
	return &berthv1.RunRequest{Message: &berthv1.RunRequest_Attach{Attach: &berthv1.RunAttach{
		Workspace: key("ws"), RunId: runID, StdoutOffset: stdoutOffset, StderrOffset: stderrOffset,
	}}}
}
