//go:build docker

package docker_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestStop_KeepsTheFilesWhichCanBeRead(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]map[string]any{
		"writable root":  {},
		"read-only root": {"read_only": true, "user": "agent"},
		"no guest":       {"guest": "off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "busybox", extra)
			ws := b.open(t)
			if err := ws.WriteFile(t.Context(), "a/b", []byte("kept")); err != nil {
				t.Fatal(err)
			}
			output(t, ws, "ln -s a/b link; echo mine >own; chmod 600 own")
			going, out := io.Pipe()
			defer going.Close()
			p, err := ws.Start(t.Context(), workspace.Command{Script: "echo; exec sleep 600", Stdout: out})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := going.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			started := b.inspect(t, ref(t, ws)).State.StartedAt
			for range 2 {
				if err := b.host.Stop(t.Context(), ref(t, ws)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.Wait(); !errors.Is(err, workspace.ErrUnavailable) {
				t.Errorf("a command that ran: %v", err)
			}
			files, err := b.host.OpenStored(t.Context(), ref(t, ws))
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{"a/b": "kept", "link": "kept", "own": "mine\n"} {
				if got := stored(t, files, path); got != want {
					t.Errorf("%s holds %q, want %q", path, got, want)
				}
			}
			if entries, err := files.ReadDir(t.Context(), "."); err != nil || len(entries) != 3 {
				t.Errorf("the listing: %+v, %v", entries, err)
			}
			if _, err := files.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that is not there: %v", err)
			}
			if s := b.inspect(t, ref(t, ws)).State; s.Status != container.StateExited || s.StartedAt != started {
				t.Errorf("the container is %s, started %s and first %s", s.Status, s.StartedAt, started)
			}
			if got := output(t, ws, "cat a/b"); got != "kept" { // the same handle
				t.Errorf("after the start: %q", got)
			}
			if got := stored(t, files, "a/b"); got != "kept" {
				t.Errorf("read while it runs: %q", got)
			}
		})
	}
}

func stored(t testing.TB, files workspace.Stored, path string) string {
	t.Helper()
	r, err := files.Open(t.Context(), path, workspace.ReadOptions{})
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return ""
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return string(data)
}

func TestStop_OfWhatIsGoneForeignOrInMemory(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	gone := workspace.Ref{Provider: b.provider, ID: workspace.NewToken()}
	if err := b.host.Stop(t.Context(), gone); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("one that is not there: %v", err)
	}
	files, err := b.host.OpenStored(t.Context(), gone)
	if err == nil {
		_, err = files.Stat(t.Context(), ".")
	}
	if !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("the files of one that is not there: %v", err)
	}

	memory := newBed(t, "busybox", map[string]any{"tmpfs": map[string]string{"/workspace": ""}})
	ws := memory.open(t)
	output(t, ws, "echo kept >f")
	if err := memory.host.Stop(t.Context(), ref(t, ws)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("one whose files are in memory: %v", err)
	}
	if got := output(t, ws, "cat f"); got != "kept\n" {
		t.Errorf("after a stop that was refused: %q", got)
	}

	name := b.provider + "-theirs"
	id := b.plain(t, name, &container.Config{Image: "berth-test/busybox", Cmd: []string{"sleep", "600"}}, nil)
	theirs := newBed(t, "busybox", map[string]any{"container_name": name})
	other := theirs.open(t)
	output(t, other, "true")
	if err := theirs.host.Stop(t.Context(), ref(t, other)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("somebody else's container: %v", err)
	}
	state, err := theirs.engine.ContainerInspect(t.Context(), id)
	if err != nil || !state.State.Running {
		t.Errorf("somebody else's container: %+v, %v", state.State, err)
	}
}

// TestStop_WhileCallsCome stops again and again what is in use: each call works, or
// says that the workspace went away.
func TestStop_WhileCallsCome(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	ws := b.open(t)
	output(t, ws, "echo kept >f")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := b.host.Stop(t.Context(), ref(t, ws)); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
	}()
	worked := 0
	for ctx.Err() == nil {
		result, err := ws.Run(t.Context(), workspace.Command{Args: []string{"cat", "f"}})
		switch {
		case err == nil && result.StdoutText() == "kept\n":
			worked++
		case err == nil:
			t.Errorf("a result that is none: %+v", result)
		case !errors.Is(err, workspace.ErrUnavailable) && !errors.Is(err, workspace.ErrTransient):
			t.Errorf("an error that does not say what happened: %v", err)
		}
	}
	<-done
	if got := output(t, ws, "cat f"); got != "kept\n" {
		t.Errorf("in the end: %q", got)
	}
	t.Logf("%d calls worked", worked)
}
