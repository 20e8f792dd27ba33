//go:build docker

package docker_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// swaps is how often the plugin is swapped, which is more often than a run may lose
// its stream by itself.
const swaps = 20

// TestSwapsLoseNothing: commands that get their input, and write, while their plugin
// is swapped again and again.
func TestSwapsLoseNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	const workspaces, commands = 2, 4
	swapped := make(chan struct{}, workspaces*commands)
	var work sync.WaitGroup
	spaces := make([]workspace.Workspace, workspaces)
	for i := range spaces {
		spaces[i] = b.open(t)
		for n := range commands {
			work.Go(func() { converse(t, spaces[i], n, swapped) })
		}
	}
	// What follows a run moves too, and an outcome that nobody asks for holds no one.
	detached, err := spaces[0].Start(t.Context(), workspace.Command{Detached: true, Script: "echo early; exit 6"})
	if err != nil {
		t.Fatal(err)
	}
	pids := map[int]bool{}
	for range swaps {
		if err := b.host.Reload(t.Context(), b.provider); err != nil {
			t.Errorf("reload: %v", err)
		}
		pids[b.host.Providers()[0].PID] = true
		for range cap(swapped) {
			swapped <- struct{}{}
		}
	}
	close(swapped)
	work.Wait()
	eventually(t, "the old plugins to leave", func() bool { return b.host.Providers()[0].Leaving == 0 })
	if res, err := detached.Wait(); err != nil || res.ExitCode != 6 || string(res.Stdout) != "early\n" {
		t.Errorf("the detached command: %+v, %v", res, err)
	}
	if st := b.host.Providers()[0]; len(pids) != swaps || st.Restarts != 0 || st.LastError != "" || st.SwapError != "" {
		t.Errorf("%d plugins, %+v", len(pids), st)
	}
	for i, ws := range spaces {
		ran, err := ws.ReadFile(t.Context(), "ran")
		if err != nil || len(strings.Fields(string(ran))) != commands {
			t.Errorf("workspace %d: %q ran, want %d commands, each once (%v)", i, ran, commands, err)
		}
	}
}

// converse gives one command a line of its input for each swap that was done, and
// wants it back.
func converse(t *testing.T, ws workspace.Workspace, n int, swapped <-chan struct{}) {
	stdin, in := io.Pipe()
	var want, got bytes.Buffer
	p, err := ws.Start(t.Context(), workspace.Command{
		Script: fmt.Sprintf("echo %d >>ran; cat; echo end >&2; exit %d", n, n), Stdin: stdin, Stdout: &got,
	})
	if err != nil {
		t.Errorf("command %d: %v", n, err)
		return
	}
	for i := 0; ; i++ {
		line := fmt.Appendf(nil, "%d of %d %s\n", i, n, strings.Repeat("\x00\xff", 20<<10))
		want.Write(line)
		if _, err := in.Write(line); err != nil {
			t.Errorf("command %d: %v", n, err)
		}
		if _, more := <-swapped; !more {
			break
		}
	}
	_ = in.Close()
	res, err := p.Wait()
	if err != nil || res.ExitCode != n || string(res.Stderr) != "end\n" || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("command %d: %+v with %d bytes of output, want %d: %v", n, res, got.Len(), want.Len(), err)
	}
}
