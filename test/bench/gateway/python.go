package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

//go:embed client.py
var clientScript string

// pythonClient is a process with the predecessor's own client.
type pythonClient struct {
	cmd     *exec.Cmd
	asks    *json.Encoder
	stdin   io.Closer
	answers *bufio.Reader
}

// startClient starts it, with a session in each service.
func startClient(ctx context.Context, python string, services map[string]*service) (*pythonClient, error) {
	cmd := exec.Command(python, "-c", clientScript) //nolint:gosec // our own script
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &pythonClient{cmd, json.NewEncoder(stdin), stdin, bufio.NewReader(stdout)}
	at := map[string]map[string]string{}
	for name, s := range services {
		at[name] = map[string]string{"url": s.url, "token": s.token}
	}
	_, err = c.ask(ctx, at)
	return c, err
}

// do has the client do some work so often.
func (c *pythonClient) do(ctx context.Context, service, work string, times int) (result, error) {
	taken, err := c.ask(ctx, map[string]any{"service": service, "work": work, "times": times})
	if err != nil {
		return taken, fmt.Errorf("%s in %s: %w", work, service, err)
	}
	return taken, nil
}

// ask writes a line and reads one. Where ctx ends first the process is killed.
func (c *pythonClient) ask(ctx context.Context, what any) (taken result, err error) {
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	if err := c.asks.Encode(what); err != nil {
		return taken, err
	}
	line, err := c.answers.ReadBytes('\n')
	if err != nil {
		return taken, errors.Join(fmt.Errorf("the client in Python has ended: %w", err), ctx.Err())
	}
	var answer struct {
		Seconds     []float64
		Note, Error string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return taken, err
	}
	if answer.Error != "" {
		return taken, errors.New(answer.Error)
	}
	taken.note = answer.Note
	for _, s := range answer.Seconds {
		taken.Samples = append(taken.Samples, time.Duration(s*float64(time.Second)))
	}
	return taken, nil
}

// close has it destroy its workspaces and end.
func (c *pythonClient) close() error {
	timer := time.AfterFunc(endTimeout, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	if err := errors.Join(c.stdin.Close(), c.cmd.Wait()); err != nil {
		return fmt.Errorf("end the client in Python: %w", err)
	}
	return nil
}
