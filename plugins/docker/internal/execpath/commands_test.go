//go:build docker

package execpath_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
	"github.com/berth-dev/berth/shared/workspace"
)

// bench is a container to look at from outside.
type bench struct {
	engine *engine.Engine
	id     string
	ws     *execpath.Workspace
}

func newBench(t *testing.T, b box) *bench {
	t.Helper()
	p, err := plugin(t, b).New(t.Context(), config{}, sdk.Env{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := p.Create(t.Context(), sdk.CreateRequest{Token: "one"})
	if err != nil {
		t.Fatal(err)
	}
	ws := made.(*execpath.Workspace)
	t.Cleanup(func() { _ = ws.Close() })
	return &bench{p.(*provider).engine, ws.Incarnation(), ws}
}

// inside runs a script in the container past the workspace.
func (b *bench) inside(t *testing.T, script string) string {
	t.Helper()
	x, err := b.engine.Exec(t.Context(), b.id, engine.ExecOptions{Cmd: []string{"/bin/sh", "-c", script}, User: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var out strings.Builder
	if err := x.Copy(&out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// start starts a script.
func (b *bench) start(t *testing.T, script string, env map[string]string) sdk.Process {
	t.Helper()
	p, err := b.ws.Start(t.Context(), sdk.Command{Args: []string{"/bin/sh", "-c", script}, Dir: workDir, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// finish reads a command to its end.
func finish(t *testing.T, p sdk.Process) (stdout string, code int) {
	t.Helper()
	go func() { _, _ = io.Copy(io.Discard, p.Stderr()) }()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	code, err = p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return string(out), code
}

// patience is for what takes seconds at most, on a busy machine.
const patience = time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after %v", what, patience)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// running counts the processes of the container whose arguments hold a word.
func (b *bench) running(t *testing.T, word string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(b.inside(t, `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f 2>/dev/null; echo; done`)) {
		if strings.HasPrefix(line, word) {
			n++
		}
	}
	return n
}

// TestB3_WhatRunsIsStoppedWithoutThePlugin shows it by the end of all connections,
// which is what the end of a plugin is to a container. What ended commands have left
// goes on.
func TestB3_WhatRunsIsStoppedWithoutThePlugin(t *testing.T) {
	t.Parallel()
	for _, image := range []string{"busybox", "debian"} {
		t.Run(image, func(t *testing.T) {
			b := newBench(t, box{image: image})
			if out, code := finish(t, b.start(t, "sleep 1111 >/dev/null 2>&1 & echo left", nil)); out != "left\n" || code != 0 {
				t.Fatalf("%q, exit code %d", out, code)
			}
			eventually(t, "the command is forgotten", func() bool { return b.running(t, "sleep 1111") == 1 })
			b.start(t, "sleep 2222 & setsid sleep 2222 & sleep 2222", nil)
			eventually(t, "the command runs", func() bool { return b.running(t, "sleep 2222") == 3 })
			if err := b.ws.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "it is stopped", func() bool { return b.running(t, "sleep 2222") == 0 })
			if n := b.running(t, "sleep 1111"); n != 1 {
				t.Errorf("%d processes are left of a command that ended, want 1", n)
			}
		})
	}
}

// TestC8_OutputsStayOpenForBackgroundChildren waits longer than the engine keeps the
// streams of an exec that has ended.
func TestC8_OutputsStayOpenForBackgroundChildren(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox"})
	began := time.Now()
	out, code := finish(t, b.start(t, `(sleep 6; yes | head -c 300000 && touch mark) & echo done`, nil))
	if out != "done\n" || code != 0 {
		t.Errorf("%q, exit code %d", out, code)
	}
	t.Logf("the result came after %v", time.Since(began))
	eventually(t, "the child has written what nobody reads", func() bool {
		_, err := b.ws.Stat(t.Context(), "mark")
		return err == nil
	})
	eventually(t, "the shell that kept its outputs open has ended", func() bool { return b.running(t, "/bin/sh -c # Runs one command") == 0 })
}

// TestB7_ValuesAreInNoDescription looks everywhere where the engine would show them.
func TestB7_ValuesAreInNoDescription(t *testing.T) {
	t.Parallel()
	const secret = "secret-4711"
	b := newBench(t, box{image: "debian"})
	p := b.start(t, "echo ready; sleep 1000", map[string]string{"TOKEN": secret})
	if _, err := io.ReadFull(p.Stdout(), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	err := b.engine.Query(t.Context(), "looking", func(ctx context.Context, c *client.Client) error {
		state, body, err := c.ContainerInspectWithRaw(ctx, b.id, false)
		if err != nil {
			return err
		}
		if strings.Contains(string(body), secret) {
			t.Error("the container's description holds the value")
		}
		top, err := c.ContainerTop(ctx, b.id, nil)
		if err != nil || strings.Contains(fmt.Sprint(top), secret) {
			t.Errorf("the list of its processes holds the value, or %v", err)
		}
		for _, id := range state.ExecIDs {
			response, err := c.HTTPClient().Get("http://" + client.DummyHost + "/exec/" + id + "/json")
			if err != nil {
				return err
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || !strings.Contains(string(text), "Runs one command") && !strings.Contains(string(text), "A shell that is kept") || strings.Contains(string(text), secret) {
				t.Errorf("an exec's description holds the value, or is of something else (error %v): %.100s", err, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left := p.Stop(0); left != "" {
		t.Error(left)
	}
	_ = p.Close()
}

// TestTheKeeperMayBeKilled has a command kill all it can.
func TestTheKeeperMayBeKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox", user: "1000", rootInit: true})
	p := b.start(t, "trap '' HUP; for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -9 $p 2>/dev/null; done; echo ready; sleep 3333", nil)
	if _, err := io.ReadFull(p.Stdout(), make([]byte, 6)); err == nil {
		t.Log("its own shell is alive")
	}
	if left := p.Stop(0); left != "" {
		t.Errorf("not stopped: %s", left)
	}
	_ = p.Close()
	if n := b.running(t, "sleep 3333"); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if out, code := finish(t, b.start(t, "echo again", nil)); out != "again\n" || code != 0 {
		t.Errorf("the next command: %q, exit code %d", out, code)
	}
	if _, err := b.ws.Stat(t.Context(), "."); err != nil {
		t.Errorf("the next file operation: %v", err)
	}
}

// TestTheEndOfTheContainerIsSaid ends it in the middle of a command.
func TestTheEndOfTheContainerIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox"})
	p := b.start(t, "sleep 1000", nil)
	err := b.engine.Change(t.Context(), "killing the container", func(ctx context.Context, c *client.Client) error {
		return c.ContainerRemove(ctx, b.id, container.RemoveOptions{Force: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a command whose container was removed: exit code %d, error %v", code, err)
	}
	_ = p.Close()
	if _, err := b.ws.Stat(t.Context(), "."); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a file operation in a container that was removed: %v", err)
	}
	if _, err := b.ws.Start(t.Context(), sdk.Command{Args: []string{"true"}}); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a command in a container that was removed: %v", err)
	}
}

// TestF9_TheUsersPermissionsDecide shows that no file operation is root's.
func TestF9_TheUsersPermissionsDecide(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "debian", user: "1000"})
	b.inside(t, "mkdir -m 755 /root-owned; echo x >/root-owned/secret; chmod 600 /root-owned/secret")
	if _, err := b.ws.Open(t.Context(), "/root-owned/secret", workspace.ReadOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("reading root's file: %v", err)
	}
	if _, err := b.ws.Create(t.Context(), "/root-owned/new", workspace.WriteOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("writing in root's folder: %v", err)
	}
	if err := b.ws.Remove(t.Context(), "/root-owned/secret"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("removing root's file: %v", err)
	}
}

// TestAFloodHoldsUpNoStart starts commands whose first output fills all buffers
// before their other output is heard of.
func TestAFloodHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox"})
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		p, err := b.ws.Start(ctx, sdk.Command{Args: []string{"yes"}})
		cancel()
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		if left := p.Stop(0); left != "" {
			t.Error(left)
		}
		_ = p.Close()
	}
}
