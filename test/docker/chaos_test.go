//go:build docker

package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/internal/model"
)

// envChaos is how long the storms last, such as 5m.
const envChaos = "BERTH_TEST_CHAOS"

func chaosTime(t testing.TB) time.Duration {
	text := os.Getenv(envChaos)
	if text == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// killIn kills one process of a container whose command line holds word, as a
// machine short of memory would.
func (b *bed) killIn(ctx context.Context, id, word string) (killed bool) {
	top, err := b.engine.ContainerTop(ctx, id, []string{"-eo", "pid,args"})
	if err != nil {
		return false
	}
	var pids []int
	for _, p := range top.Processes {
		if pid, err := strconv.Atoi(p[0]); err == nil && strings.Contains(p[len(p)-1], word) {
			pids = append(pids, pid)
		}
	}
	return len(pids) > 0 && syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil
}

// storm is what came of the callers' work.
type storm struct{ done, broken, lost atomic.Int64 }

// caller works in a workspace, and knows what each answer must be.
func (s *storm) caller(ctx context.Context, t *testing.T, ws workspace.Workspace, n int, runsMayBreak bool) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	path, file := fmt.Sprintf("file-%d", n), model.File{}
	fill := func(size int) []byte {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		return data
	}
	// All that may be said of a call that something was killed under.
	broken := func(what string, err error) {
		var plugin *workspace.PluginError
		s.broken.Add(1)
		unknown := runsMayBreak && what == "run" && strings.Contains(err.Error(), "unknown") // a killed supervisor's
		if !errors.As(err, &plugin) && !errors.Is(err, workspace.ErrTransient) && !unknown {
			t.Errorf("caller %d: %s: %v", n, what, err)
		}
	}
	for round := 0; ctx.Err() == nil; round++ {
		// None of these takes a second by itself.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 90*time.Second)
		began := time.Now()
		kind := random.IntN(5)
		switch kind {
		case 0:
			data := fill(random.IntN(200 << 10))
			err := ws.WriteFile(call, path, data)
			if err == nil {
				file.Wrote(data)
				break
			}
			file.MayHaveWritten(data)
			broken("write", err)
		case 1:
			data, err := ws.ReadFile(call, path)
			switch {
			case err == nil && !file.Is(data):
				t.Errorf("caller %d: a read of %d bytes that nobody wrote, want one of %d contents", n, len(data), file.Contents())
			case errors.Is(err, fs.ErrNotExist) && file.MayBeAbsent():
			case err != nil:
				broken("read", err)
			}
		default:
			in := fill(random.IntN(64 << 10))
			cmd := workspace.Command{Stdin: bytes.NewReader(in), Args: []string{"cat"}}
			want, code := in, 0
			if kind == 3 {
				code = random.IntN(100)
				cmd = workspace.Command{Script: fmt.Sprintf("i=0; while [ $i -lt 2000 ]; do echo %d-$i; i=$((i+1)); done; exit %d", round, code)}
				var all bytes.Buffer
				for i := range 2000 {
					fmt.Fprintf(&all, "%d-%d\n", round, i)
				}
				want = all.Bytes()
			}
			if kind == 4 {
				cmd = workspace.Command{Script: "cat; sleep 0." + strconv.Itoa(random.IntN(10)) + "; echo end", Stdin: bytes.NewReader(in)}
				want = append(bytes.Clone(in), "end\n"...)
			}
			res, err := ws.Run(call, cmd)
			switch {
			case err == nil && (res.ExitCode == 137 || res.ExitCode == 143) && runsMayBreak:
				s.lost.Add(1) // the command itself was killed
			case err == nil && (res.ExitCode != code || !bytes.Equal(res.Stdout, want) || len(res.Stderr) > 0):
				t.Errorf("caller %d: kind %d: exit code %d with %d and %d bytes, want %d with %d (%.200s)", n, kind, res.ExitCode, len(res.Stdout), len(res.Stderr), code, len(want), res.Stderr)
			case err != nil && !runsMayBreak:
				t.Errorf("caller %d: kind %d: a run was lost: %v", n, kind, err)
			case err != nil:
				broken("run", err)
			}
		}
		if took := time.Since(began); took > 60*time.Second || call.Err() != nil {
			t.Errorf("caller %d: kind %d took %v", n, kind, took)
		}
		cancel()
		s.done.Add(1)
	}
}

// A plugin that keeps dying is started after 3 s at last. From then on it is given a
// life that is worth the wait, or no run could be found within its 10 s.
const (
	rapidKills = 12
	calmLife   = 5 * time.Second
)

// chaos has 50 callers in 5 workspaces, while kill kills.
func chaos(t *testing.T, runsMayBreak bool, kills ...string) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"pids_limit": 4096})
	spaces := make([]workspace.Workspace, 5)
	refs := make([]workspace.Ref, len(spaces))
	for i := range spaces {
		spaces[i] = b.open(t)
		refs[i] = ref(t, spaces[i])
	}
	ctx, cancel := context.WithTimeout(t.Context(), chaosTime(t))
	defer cancel()
	var s storm
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() { s.caller(ctx, t, spaces[n%len(spaces)], n, runsMayBreak) })
	}
	killed := map[string]int{}
	select { // a guest of this age knows what it was asked before its plugin was killed
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	pause := time.NewTicker(700 * time.Millisecond)
	defer pause.Stop()
	lastPlugin := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-pause.C:
		}
		word := kills[rand.IntN(len(kills))]
		if word == "plugin" {
			if killed[word] >= rapidKills && time.Since(lastPlugin) < calmLife {
				continue
			}
			kill(t, b.host)
			lastPlugin = time.Now()
			killed[word]++
		} else if b.killIn(ctx, refs[rand.IntN(len(refs))].ID, word) {
			killed[word]++
		}
	}
	wg.Wait()
	t.Logf("%d calls, %d broken, %d commands killed, by %v", s.done.Load(), s.broken.Load(), s.lost.Load(), killed)
	for _, ws := range spaces {
		if got := output(t, ws, "echo still here"); got != "still here\n" {
			t.Errorf("after it all: %q", got)
		}
	}
}

func TestChaos_PluginAndConnection(t *testing.T) { chaos(t, false, "plugin", "berth-guest connect") }

func TestChaos_Everything(t *testing.T) {
	chaos(t, true, "plugin", "berth-guest connect", "berth-guest serve", "berth-supervisor keep", "berth-supervisor supervise")
}
