package hosttest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/shared/workspace"
)

// leave starts a long command that goes on when this program ends. What is to be
// remembered are the workspace's ref and the run's id.
func leave(ctx context.Context, h workspace.Host) (workspace.Ref, string, error) {
	ws, err := h.Workspace("docker")
	if err != nil {
		return workspace.Ref{}, "", err
	}
	p, err := ws.Start(ctx, workspace.Command{Args: []string{"make", "test"}, Detached: true})
	if err != nil {
		return workspace.Ref{}, "", err
	}
	ref, _ := ws.Ref()
	return ref, p.ID(), nil
}

// comeBack follows it in another program, later.
func comeBack(ctx context.Context, h workspace.Host, ref workspace.Ref, run string) (*workspace.Result, error) {
	ws, err := h.Attach(ref)
	if err != nil {
		return nil, err
	}
	for info, err := range ws.ListRuns(ctx) {
		if err != nil {
			return nil, err
		}
		fmt.Println(info.Args, "detached:", info.Detached)
	}
	p, err := ws.AttachRun(ctx, run, workspace.AttachOptions{Stdout: os.Stdout})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("somebody else has asked how it ended: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// A command that is started detached is found again by its run's id.
func ExampleFake_detached() {
	ctx := context.Background()
	var fake hosttest.Fake
	fake.On(hosttest.Reply{Stdout: "FAIL: 1 of 3\n", ExitCode: 2}, "make", "test")

	ref, run, err := leave(ctx, &fake)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := comeBack(ctx, &fake, ref, run)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("exit code", res.ExitCode)
	// Output:
	// [make test] detached: true
	// FAIL: 1 of 3
	// exit code 2
}
