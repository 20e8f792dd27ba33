//go:build docker && linux

package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

func TestAnEngineThatIsKilledInMidCommand(t *testing.T) {
	shared := enginetest.Client(t)
	ref := enginetest.Image(t, "busybox")
	image, err := shared.ImageSave(t.Context(), []string{ref})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	own := enginetest.Own(t)
	t.Setenv("DOCKER_HOST", own.Host())
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	var id string
	err = eng.Change(t.Context(), "starting a container", func(ctx context.Context, c *client.Client) error {
		loaded, err := c.ImageLoad(ctx, image)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, loaded.Body)
		loaded.Body.Close()
		made, err := c.ContainerCreate(ctx, &container.Config{Image: ref, Cmd: []string{"sleep", "3600"}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
		if err != nil {
			return err
		}
		id = made.ID
		return c.ContainerStart(ctx, id, container.StartOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	x, err := eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"sh", "-c", "echo begun; sleep 3600"}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	idle, err := eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	conn := idle.Conn()
	defer conn.Close()

	begin := make(chan struct{})
	begun := sync.OnceFunc(func() { close(begin) })
	killed := make(chan time.Time, 1)
	go func() {
		<-begin
		own.Kill()
		killed <- time.Now()
	}()
	err = x.Copy(writer(func(p []byte) {
		if strings.Contains(string(p), "begun") {
			begun()
		}
	}), io.Discard)
	begun() // if it has not, the kill is still to come
	if err != nil && !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("the output ends with %v", err)
	}
	if took := time.Since(<-killed); took > time.Minute {
		t.Errorf("it ended after %v", took)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its engine")
	}
	if _, err := x.Wait(t.Context()); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("the exit code of a dead engine is %v", err)
	}

	own.Start()
	if _, err := x.Wait(t.Context()); !errdefs.IsNotFound(err) {
		t.Errorf("the exit code of a command that another engine has started is %v", err)
	}
	err = eng.Change(t.Context(), "starting the container again", func(ctx context.Context, c *client.Client) error {
		return c.ContainerStart(ctx, id, container.StartOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := eng.Exec(t.Context(), id, engine.ExecOptions{Cmd: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Copy(io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
	if code, err := again.Wait(t.Context()); err != nil || code != 0 {
		t.Errorf("a command on the new engine: %d, %v", code, err)
	}
	err = eng.Change(t.Context(), "removing the container", func(ctx context.Context, c *client.Client) error {
		return c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
	})
	if err != nil {
		t.Error(err)
	}
}

// writer is a function that takes what is written.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
