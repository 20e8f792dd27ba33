package hosttest_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/shared/workspace"
)

func fakeRuns(t *testing.T, ws workspace.Workspace) []workspace.RunInfo {
	t.Helper()
	var infos []workspace.RunInfo
	for info, err := range ws.ListRuns(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	return infos
}

func TestFakeRunsAreFoundAgain(t *testing.T) {
	var fake hosttest.Fake
	fake.On(hosttest.Reply{Stdout: "0123456789", Stderr: "e", Hang: true}, "long")
	fake.On(hosttest.Reply{ExitCode: 4}, "short")
	ws, err := fake.Workspace("docker")
	if err != nil {
		t.Fatal(err)
	}
	long, err := ws.Start(t.Context(), workspace.Command{Args: []string{"long"}, Detached: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Run(t.Context(), workspace.Command{Args: []string{"short"}}); err != nil {
		t.Fatal(err)
	}
	if infos := fakeRuns(t, ws); len(infos) != 1 || infos[0].ID != long.ID() || !infos[0].Detached || infos[0].Ended || infos[0].Started.IsZero() {
		t.Errorf("%+v", infos)
	}

	ctx, cancel := context.WithCancel(t.Context())
	left, err := ws.AttachRun(ctx, long.ID(), workspace.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := left.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var out bytes.Buffer
	again, err := ws.AttachRun(t.Context(), long.ID(), workspace.AttachOptions{Stdout: &out, StdoutOffset: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Signal(t.Context(), workspace.SignalTerminate); err != nil {
		t.Error(err)
	}
	res, err := again.Wait()
	if err != nil || res.ExitCode != 143 || out.String() != "789" || string(res.Stderr) != "e" {
		t.Errorf("%+v, %q, %v", res, out.String(), err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(fakeRuns(t, ws)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still listed")
		}
	}
	if _, err := ws.AttachRun(t.Context(), long.ID(), workspace.AttachOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestFakeStopRun(t *testing.T) {
	var fake hosttest.Fake
	fake.On(hosttest.Reply{Hang: true}, "long")
	ws, err := fake.Workspace("docker")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ws.Start(t.Context(), workspace.Command{Args: []string{"long"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.StopRun(t.Context(), p.ID()); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err == nil {
		t.Errorf("%+v", res)
	}
	if err := ws.StopRun(t.Context(), "run-9"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
