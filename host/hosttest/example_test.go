package hosttest_test

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/shared/workspace"
)

// countTests stands for a program that is given a host.
func countTests(ctx context.Context, h workspace.Host) (string, error) {
	ws, err := h.Workspace("docker")
	if err != nil {
		return "", err
	}
	if err := ws.WriteFile(ctx, "go.mod", []byte("module example\n")); err != nil {
		return "", err
	}
	res, err := ws.Run(ctx, workspace.Command{Args: []string{"go", "test", "./..."}})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("exit %d: %s", res.ExitCode, res.StdoutText()), nil
}

func Example() {
	var fake hosttest.Fake
	fake.On(hosttest.Reply{Stdout: "FAIL: 1 of 3", ExitCode: 1}, "go", "test")
	fake.On(hosttest.Reply{Stdout: "ok", ExitCode: 0}, "go", "test")

	for range 2 {
		told, err := countTests(context.Background(), &fake)
		fmt.Println(told, err)
	}
	fmt.Println(len(fake.Commands()), "commands")
	// Output:
	// exit 1: FAIL: 1 of 3 <nil>
	// exit 0: ok <nil>
	// 2 commands
}

// A command that hangs is stopped by its timeout, as a real one is.
func ExampleFake_On() {
	var fake hosttest.Fake
	fake.On(hosttest.Reply{Err: workspace.ErrUnavailable}, "/bin/sh", "-c")
	ws, err := fake.Workspace("docker")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = ws.Run(context.Background(), workspace.Command{Script: "make"})
	fmt.Println(err)
	// Output: workspace unavailable
}
