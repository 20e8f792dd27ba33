//go:build docker

package execpath_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestShellsThatACommandStopsGoOn has a command stop all that it can: its own shell,
// the keeper, and the shell that is kept for files.
func TestShellsThatACommandStopsGoOn(t *testing.T) {
	for _, image := range []string{"busybox", "debian"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, box{image: image, user: "1000", rootInit: true})
			if _, err := b.ws.Stat(t.Context(), "."); err != nil {
				t.Fatal(err)
			}
			p := b.start(t, "kill -STOP -1; echo all", nil)
			stuck := time.AfterFunc(patience, func() { _ = p.Close() })
			defer stuck.Stop()
			if out, code := finish(t, p); out != "all\n" || code != 0 {
				t.Errorf("the command that stopped all: %q, exit code %d", out, code)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := b.ws.Stat(ctx, "."); err != nil {
				t.Errorf("the next file operation: %v", err)
			}
			if out, code := finish(t, b.start(t, "echo next", nil)); out != "next\n" || code != 0 {
				t.Errorf("the next command: %q, exit code %d", out, code)
			}
		})
	}
}

// flooding is a /bin/sh that begins as it should and then answers without an end.
const flooding = `#!/bin/busybox sh
read -r word
printf '\001%s 7\n' "$word" >&2
printf '\001%s\n' "$word"
read -r line
exec yes nonsense
`

// TestAShellThatFloodsIsRefused replaces the container's, as root there may.
func TestAShellThatFloodsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox"})
	script := "cat >/bin/flood <<'END'\n" + flooding + "END\nchmod 755 /bin/flood && mv /bin/flood /bin/sh\n" +
		"for p in $(grep -l '^/bin/sh' /proc/[0-9]*/cmdline); do p=${p#/proc/}; p=${p%/*}; [ $p = $$ ] || kill -9 $p; done"
	if _, err := b.ws.Stat(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	p := b.start(t, script, nil)
	_, _ = p.Wait()
	_ = p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.ws.Start(ctx, sdk.Command{Args: []string{"true"}}); err == nil || ctx.Err() != nil {
		t.Errorf("a command by a shell that floods: error %v", err)
	} else {
		t.Log(err)
	}
	if _, err := b.ws.Open(ctx, "/etc/passwd", workspace.ReadOptions{}); err == nil || ctx.Err() != nil {
		t.Errorf("a file read by a shell that floods: error %v", err)
	} else {
		t.Log(err)
	}
	if _, err := b.ws.ReadDir(ctx, "/"); err == nil || ctx.Err() != nil {
		t.Errorf("a listing by a shell that floods: error %v", err)
	} else {
		t.Log(err)
	}
}

// TestAShellThatCannotBeExecutedIsNotMissing opens a container whose shell the engine
// cannot execute, as at a limit of processes: that may pass, and it is not taken for
// one that has files only.
func TestAShellThatCannotBeExecutedIsNotMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t, box{image: "busybox"})
	b.inside(t, "chmod 644 /bin/busybox")
	ws, err := execpath.New(t.Context(), execpath.Config{Engine: b.engine, ContainerID: b.id, WorkingDir: workDir})
	if !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("opening it: %v, want ErrTransient", err)
	}
	if err == nil {
		_ = ws.Close()
	}
}
