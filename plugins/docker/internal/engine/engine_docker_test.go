//go:build docker

package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// start starts a container that stays, and returns its id.
func start(t *testing.T, eng *engine.Engine) string {
	t.Helper()
	name := enginetest.Unique(t)
	image := enginetest.Image(t, "busybox")
	var id string
	err := eng.Change(t.Context(), "starting a container", func(ctx context.Context, c *client.Client) error {
		made, err := c.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"sleep", "3600"}}, &container.HostConfig{Init: ptr(true), NetworkMode: "none"}, nil, nil, name)
		if err != nil {
			return err
		}
		id = made.ID
		return c.ContainerStart(ctx, id, container.StartOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func ptr[T any](v T) *T { return &v }

func open(t *testing.T) *engine.Engine {
	t.Helper()
	enginetest.Client(t) // there is one
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return eng
}

func TestExecOnAnEngine(t *testing.T) {
	eng := open(t)
	id := start(t, eng)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	for _, test := range []struct {
		name           string
		script         string
		stdin          []byte
		stdout, stderr string
		code           int
	}{
		{name: "streams apart", script: "echo out; echo err >&2; exit 7", stdout: "out\n", stderr: "err\n", code: 7},
		{name: "nothing", script: ":"},
		{name: "input that ends", script: "cat; echo end", stdin: []byte("in\n"), stdout: "in\nend\n"},
		{name: "large input and output", script: "cat", stdin: big, stdout: string(big)},
		{name: "killed", script: "kill -9 $$", code: 137},
		{name: "no input", script: "cat; echo end", stdout: "end\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, err := eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"sh", "-c", test.script}, Stdin: test.stdin != nil})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			written := make(chan error, 1)
			go func() {
				if test.stdin == nil {
					written <- nil
					return
				}
				_, err := x.Write(test.stdin)
				written <- errors.Join(err, x.CloseWrite())
			}()
			var stdout, stderr bytes.Buffer
			if err := x.Copy(&stdout, &stderr); err != nil {
				t.Error(err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
			code, err := x.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if stdout.String() != test.stdout || stderr.String() != test.stderr || code != test.code {
				t.Errorf("stdout of %d bytes, stderr %q, code %d; want %d bytes, %q, %d", stdout.Len(), stderr.String(), code, len(test.stdout), test.stderr, test.code)
			}
		})
	}
}

func TestExecAsAConnectionToAnEngine(t *testing.T) {
	eng := open(t)
	id := start(t, eng)
	x, err := eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"sh", "-c", "echo hello >&2; cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	conn := x.Conn()
	defer conn.Close()
	buf := make([]byte, 16)
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout interface{ Timeout() bool }
	if _, err := conn.Read(buf); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a read after its deadline: %v", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, buf[:4]); err != nil || string(buf[:4]) != "ping" {
		t.Fatalf("%q, %v", buf[:4], err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
	if got := conn.Stderr(); got != "hello\n" { // the engine may give it later than what came after it
		t.Errorf("stderr %q", got)
	}
}

func TestCloseUnblocksAConnectionToAnEngine(t *testing.T) {
	eng := open(t)
	x, err := eng.Exec(t.Context(), start(t, eng), engine.ExecOptions{Cmd: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	conn := x.Conn()
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err == nil {
		t.Error("a read of a closed connection has no error")
	}
}

func TestExecThatCannotStartOnAnEngine(t *testing.T) {
	eng := open(t)
	id := start(t, eng)
	if _, err := eng.Exec(t.Context(), "berth-no-such-container", engine.ExecOptions{Cmd: []string{"true"}}); !errdefs.IsNotFound(err) {
		t.Errorf("in no container: %v", err)
	}
	err := eng.Change(t.Context(), "killing the container", func(ctx context.Context, c *client.Client) error {
		if err := c.ContainerKill(ctx, id, "KILL"); err != nil {
			return err
		}
		ended, failed := c.ContainerWait(ctx, id, container.WaitConditionNotRunning)
		select {
		case <-ended:
			return nil
		case err := <-failed:
			return err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"true"}})
	if !errdefs.IsConflict(err) || !strings.Contains(err.Error(), "running") {
		t.Errorf("in a container that has ended: %v", err)
	}
	if errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("what a stopped container means is the caller's to say: %v", err)
	}
}
