//go:build sandboxd

package sandboxd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// TestLostAnswersLoseNothing: what the service loses is asked for again, and no command
// runs twice for it.
func TestLostAnswersLoseNothing(t *testing.T) {
	b := newBed(t, nil, nil)
	for _, runtime := range []string{"debian", "busybox"} {
		ws, _ := b.open(t, workspace.WithConfig(map[string]any{"runtime": runtime}))
		runs := 0
		large := bytes.Repeat([]byte("0123456789abcde\xff"), 100_000)
		for name, test := range map[string]struct {
			cmd      workspace.Command
			out, err string
			code     int
			fails    error
		}{
			"output":       {cmd: workspace.Command{Script: "echo out; echo err >&2; exit 3"}, out: "out\n", err: "err\n", code: 3},
			"nothing":      {cmd: workspace.Command{Script: "exit 0"}},
			"bytes":        {cmd: workspace.Command{Script: "printf 'a\\0\\377'"}, out: "a\x00\xff"},
			"much":         {cmd: workspace.Command{Script: "cat", Stdin: bytes.NewReader(large)}, out: string(large)},
			"a child":      {cmd: workspace.Command{Script: "(sleep 2; echo late) & echo early"}, out: "early\n"},
			"no program":   {cmd: workspace.Command{Args: []string{"no-such-program"}}, code: workspace.ExitNotFound},
			"no directory": {cmd: workspace.Command{Script: "echo", Dir: "/missing"}, fails: fs.ErrNotExist},
		} {
			for drop, lost := range map[int]int{0: 1, 6: 2, 20: 3} { // all, the first word, more
				what := fmt.Sprintf("%s: %s, %d answers without %d bytes", runtime, name, lost, drop)
				cmd := test.cmd
				if stdin, ok := cmd.Stdin.(*bytes.Reader); ok {
					stdin.Reset(large)
				}
				if cmd.Script != "" {
					runs++
					cmd.Script = fmt.Sprintf("echo >>ran-%d; %s", runs, cmd.Script)
				}
				b.front.loses(lost, drop)
				res, err := ws.Run(t.Context(), cmd)
				b.front.loses(0, 0)
				switch {
				case test.fails != nil:
					runs--
					if !errors.Is(err, test.fails) {
						t.Errorf("%s: %v, want %v", what, err, test.fails)
					}
				case err != nil:
					t.Errorf("%s: %v", what, err)
				case res.ExitCode != test.code || string(res.Stdout) != test.out || cmd.Script != "" && string(res.Stderr) != test.err:
					t.Errorf("%s: exit code %d, %d bytes %.60q, %q", what, res.ExitCode, len(res.Stdout), res.Stdout, res.Stderr)
				}
			}
		}
		if ran := script(t, ws, "cat ran-*"); len(ran) != runs {
			t.Errorf("%s: %d commands ran %d times", runtime, runs, len(ran))
		}
		b.nothingIsKept(t, runtime)
	}
	if !strings.Contains(b.log.String(), askedAgain) {
		t.Error("nothing was asked for again, so nothing was checked")
	}
}

// askedAgain is what the plugin logs of a result that was lost.
const askedAgain = "asked again for the result of a command"

// TestLostAnswersAboutFiles: what commands do to files is done once, and is told.
func TestLostAnswersAboutFiles(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"workspace_root": nil, "native_files": false, "default_runtime": "busybox"}, nil)
	ws, _ := b.open(t)
	for drop, lost := range map[int]int{0: 1, 6: 3, 7: 1} { // all, the first word, more
		do := func(what string, op func() error, fails error) {
			t.Helper()
			b.front.loses(lost, drop)
			err := op()
			b.front.loses(0, 0)
			if !errors.Is(err, fails) {
				t.Errorf("%s, with %d answers lost: %v, want %v", what, lost, err, fails)
			}
		}
		create := func(opts workspace.WriteOptions) func() error {
			return func() error {
				w, err := ws.Create(t.Context(), "f", opts)
				if err != nil {
					return err
				}
				if _, err := w.Write([]byte("a")); err != nil {
					return errors.Join(err, w.Abort())
				}
				return w.Close()
			}
		}
		do("an exclusive create", create(workspace.WriteOptions{Exclusive: true}), nil)
		do("another", create(workspace.WriteOptions{Exclusive: true}), fs.ErrExist)
		do("an append", create(workspace.WriteOptions{Append: true}), nil)
		if text, err := ws.ReadFile(t.Context(), "f"); string(text) != "aa" || err != nil {
			t.Errorf("the file holds %q, %v", text, err)
		}
		do("a rename", func() error { return ws.Rename(t.Context(), "f", "g") }, nil)
		do("a link", func() error { return ws.Symlink(t.Context(), "g", "l") }, nil)
		do("a listing", func() error {
			entries, err := ws.ReadDir(t.Context(), ".")
			if err == nil && len(entries) != 2 {
				err = fmt.Errorf("it has %d entries", len(entries))
			}
			return err
		}, nil)
		do("a removal", func() error { return ws.Remove(t.Context(), "l") }, nil)
		do("of what is missing", func() error { return ws.Remove(t.Context(), "l") }, fs.ErrNotExist)
		do("what is missing", func() error { _, err := ws.Stat(t.Context(), "l"); return err }, fs.ErrNotExist)
		do("the last removal", func() error { return ws.Remove(t.Context(), "g") }, nil)
	}
	b.nothingIsKept(t, "busybox")
}

// nothingIsKept waits until no result is in the containers of a runtime, whose
// workspaces are idle.
func (b *bed) nothingIsKept(t testing.TB, runtime string) {
	t.Helper()
	eventually(t, "nothing is kept", func() bool {
		all := b.service.Exec(t, runtime, "ls -a /tmp /dev/shm")
		if len(all) == 0 {
			t.Fatalf("no container of the runtime %s", runtime)
		}
		for _, found := range all {
			if strings.Contains(found, ".berth-") {
				return false
			}
		}
		return true
	})
}

// TestNothingIsLostUnderLoad has many short commands at once, of which the service
// loses some.
func TestNothingIsLostUnderLoad(t *testing.T) {
	const atOnce, each = 8, 25
	commands := each
	if n, err := strconv.Atoi(os.Getenv("BERTH_STRESS")); err == nil {
		commands = n
	}
	b := newBed(t, sandboxdtest.Settings{"default_runtime": "busybox"}, nil)
	ws, _ := b.open(t)
	var wait sync.WaitGroup
	var wrong atomic.Int64
	for i := range atOnce {
		wait.Go(func() {
			for j := range commands {
				want := fmt.Sprintf("%d-%d\n", i, j)
				res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"echo", strings.TrimSpace(want)}})
				if err != nil || res.ExitCode != 0 || string(res.Stdout) != want || len(res.Stderr) > 0 {
					wrong.Add(1)
					t.Errorf("echo %q: %q, %q, %v", want, res.Stdout, res.Stderr, err)
				}
			}
		})
	}
	wait.Wait()
	t.Logf("of %d commands, the results of %d were asked for again, and %d were wrong", atOnce*commands, strings.Count(b.log.String(), askedAgain), wrong.Load())
	b.nothingIsKept(t, "busybox")
}
