package swap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// collector is a writer that can be looked at while it is written to.
type collector struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *collector) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

func (c *collector) has(text string) func() bool {
	return func() bool { return strings.Contains(c.String(), text) }
}

// talker is a command that says what it is asked, knows SIGUSR1 and counts it.
const talker = `echo ran >> runs
n=0
trap 'n=$((n+1)); echo "signal $n"' USR1
echo ready
while :; do
  if read -r line; then echo "heard $line"; echo "err $line" >&2; [ "$line" = bye ] && exit 5
  elif [ $? -le 128 ]; then exit 6; fi
done`

// conversation is a talker under way.
type conversation struct {
	workspace.Process
	in       *io.PipeWriter
	out, err collector
}

func talk(t testing.TB, ws workspace.Workspace) *conversation {
	t.Helper()
	c := &conversation{}
	stdin, in := io.Pipe()
	c.in = in
	t.Cleanup(func() { _ = in.Close() })
	var err error
	if c.Process, err = ws.Start(t.Context(), workspace.Command{Args: []string{"bash", "-c", talker}, Stdin: stdin, Stdout: &c.out, Stderr: &c.err}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the command", c.out.has("ready\n"))
	return c
}

func (c *conversation) say(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Errorf("saying %q: %v", line, err)
	}
}

// end has the talker end, and checks all that it said.
func (c *conversation) end(t testing.TB, said ...string) {
	t.Helper()
	c.say(t, "bye")
	res, err := c.Wait()
	if err != nil || res.ExitCode != 5 {
		t.Errorf("%+v, %v", res, err)
		return
	}
	var heard, errs strings.Builder
	for _, line := range append(said, "bye") {
		fmt.Fprintf(&heard, "heard %s\n", line)
		fmt.Fprintf(&errs, "err %s\n", line)
	}
	got := c.out.String()
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "signal ") {
			got = strings.Replace(got, line, "", 1)
		}
	}
	if got != "ready\n"+heard.String() || c.err.String() != errs.String() {
		t.Errorf("stdout %q, stderr %q", c.out.String(), c.err.String())
	}
}

// TestRunsThatCanBeAttachedMoveAtOnce and the old one need not wait for them.
func TestRunsThatCanBeAttachedMoveAtOnce(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	c := talk(t, ws)
	var said []string
	signals := 0
	for i := range 12 { // more often than a run may break
		line := fmt.Sprintf("line %d", i)
		said = append(said, line)
		c.say(t, line)
		if i%3 == 0 {
			signals++
			if err := c.Signal(t.Context(), workspace.Signal("USR1")); err != nil {
				t.Errorf("signal: %v", err)
			}
		}
		b.swap(t, []string{versionB, versionA}[i%2])
		b.alone(t)
	}
	poll(t, "the signals", c.out.has(fmt.Sprintf("signal %d\n", signals)))
	c.end(t, said...)
	if strings.Contains(c.out.String(), fmt.Sprintf("signal %d\n", signals+1)) {
		t.Error("a signal was sent twice")
	}
	runs, err := ws.ReadFile(t.Context(), "runs")
	if err != nil || string(runs) != "ran\n" {
		t.Errorf("%q, %v", runs, err)
	}
	if st := b.status(); st.Restarts != 0 || st.LastError != "" {
		t.Errorf("%+v", st)
	}
}

// TestSignalsAreNeitherLostNorDoubledBySwaps: each is answered, and counted once.
func TestSignalsAreNeitherLostNorDoubledBySwaps(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	var out collector
	p, err := ws.Start(t.Context(), workspace.Command{
		Args: []string{"bash", "-c", `trap 'n=$((n+1)); echo "signal $n"' USR1; trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`}, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the command", out.has("ready\n"))
	stop := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
			if err := p.Signal(t.Context(), workspace.Signal("USR1")); err != nil {
				t.Errorf("signal %d: %v", n+1, err)
			}
			// One that waits to be handled hides another one of its kind.
			poll(t, "its being handled", out.has(fmt.Sprintf("signal %d\n", n+1)))
		}
	}()
	for i := range 6 {
		b.swap(t, []string{versionB, versionA}[i%2])
	}
	close(stop)
	n := <-sent
	if err := p.Signal(t.Context(), workspace.Signal("TERM")); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err != nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	if strings.Contains(out.String(), fmt.Sprintf("signal %d\n", n+1)) || n == 0 {
		t.Errorf("%d signals were sent; %q", n, out.String())
	}
	b.alone(t)
}

// TestBulkCrossesSwapsByteForByte in both directions, with a writer that is slow.
func TestBulkCrossesSwapsByteForByte(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	input := pseudoRandom(24<<20, 7)
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		res, err := ws.Run(t.Context(), workspace.Command{
			Args: []string{"cat"}, Stdin: bytes.NewReader(input), Stderr: io.Discard, Stdout: writerFunc(func(p []byte) (int, error) {
				time.Sleep(time.Duration(len(p)) * time.Second >> 23) // 8 MiB/s
				return out.Write(p)
			}), OutputLimit: workspace.NoOutputLimit,
		})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		done <- err
	}()
	swaps := 0
	for over := false; !over; swaps++ {
		b.swap(t, []string{versionB, versionA}[swaps%2])
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			over = true
		default:
		}
	}
	if !bytes.Equal(out.Bytes(), input) {
		t.Errorf("%d bytes of %d, or others", out.Len(), len(input))
	}
	if swaps < 3 {
		t.Errorf("only %d swaps in that time", swaps)
	}
	b.alone(t)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFollowersMoveToo(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	if err := ws.WriteFile(t.Context(), "go", nil); err != nil {
		t.Fatal(err)
	}
	started, err := ws.Start(t.Context(), workspace.Command{Detached: true, Script: `i=0; while [ -e go ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 4`, Stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var out collector
	follower, err := ws.(workspace.Runs).AttachRun(t.Context(), started.ID(), workspace.AttachOptions{Stdout: &out, OnGap: func(*workspace.OutputGapError) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.swap(t, []string{versionB, versionA}[i%2])
		b.alone(t)
	}
	if err := ws.Remove(t.Context(), "go"); err != nil {
		t.Fatal(err)
	}
	res, err := follower.Wait()
	if err != nil || res.ExitCode != 4 {
		t.Fatalf("%+v, %v", res, err)
	}
	previous := 0
	for line := range strings.Lines(out.String()) {
		var n int
		if _, err := fmt.Sscan(line, &n); err != nil || previous > 0 && n != previous+1 {
			t.Fatalf("%q after %d", line, previous)
		}
		previous = n
	}
	if previous == 0 {
		t.Error("it followed nothing")
	}
}

// TestAnOutcomeThatNobodyTookDoesNotHoldTheOldOne and is taken through the new one.
func TestAnOutcomeThatNobodyTookDoesNotHoldTheOldOne(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	p, err := ws.Start(t.Context(), workspace.Command{Detached: true, Script: "echo said; exit 4"})
	if err != nil {
		t.Fatal(err)
	}
	over := func() (known, ended bool) {
		for info, err := range ws.(workspace.Runs).ListRuns(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if info.ID == p.ID() {
				return true, info.Ended
			}
		}
		return false, false
	}
	poll(t, "its end", func() bool { _, ended := over(); return ended })
	for i := range 3 {
		b.swap(t, []string{versionB, versionA}[i%2])
		b.alone(t)
	}
	if known, _ := over(); !known {
		t.Error("it was forgotten before anybody asked")
	}
	if res, err := p.Wait(); err != nil || res.ExitCode != 4 || string(res.Stdout) != "said\n" {
		t.Errorf("%+v, %v", res, err)
	}
	poll(t, "its being forgotten", func() bool { known, _ := over(); return !known })
}

func TestRunsThatCannotBeAttachedKeepTheOldOne(t *testing.T) {
	b := newBed(t, plain)
	ws := b.workspace(t)
	c := talk(t, ws)
	old := b.status().PID
	b.swap(t, versionB)
	b.swap(t, versionA)
	c.say(t, "one")
	if err := c.Signal(t.Context(), workspace.Signal("USR1")); err != nil {
		t.Error(err)
	}
	poll(t, "its answer", c.out.has("heard one\n"))
	poll(t, "the one between to leave", func() bool { return b.status().Leaving == 1 })
	if pids := children(t, plain, b.dir); len(pids) != 2 || parentOf(old) == 0 {
		t.Errorf("%v, %+v", pids, b.status())
	}
	// What is called meanwhile is the new one's, in the same workspace.
	if res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"cat", "runs"}}); err != nil || string(res.Stdout) != "ran\n" {
		t.Errorf("%+v, %v", res, err)
	}
	c.end(t, "one")
	b.alone(t)
}

func TestAtTheDrainLimitARunFailsWithItsReason(t *testing.T) {
	b := newBed(t, plain, func(_ *host.Config, p *host.Provider) { p.DrainLimit = 300 * time.Millisecond })
	ws := b.workspace(t)
	c := talk(t, ws)
	old := b.status().PID
	b.swap(t, versionB)
	_, err := c.Wait()
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || plug.PID != old || plug.RunID != c.ID() || !plug.MayHaveExecuted || !strings.Contains(plug.Reason, "drain limit of 300ms") {
		t.Errorf("%v", err)
	}
	b.alone(t)
	if st := b.status(); st.State != "running" || st.LastError != "" || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
}

// TestTheNewOneDiesAtOnce when the runs have just left the old one for it.
func TestTheNewOneDiesAtOnce(t *testing.T) {
	for range 3 {
		b := newBed(t, lasting)
		ws := b.workspace(t)
		const n = 5
		var talks []*conversation
		for range n {
			talks = append(talks, talk(t, ws))
		}
		b.install(t, mayfly)
		if err := b.Reload(t.Context(), lasting); err != nil {
			t.Fatal(err)
		}
		poll(t, "its end", func() bool { return b.status().Restarts > 0 || b.status().LastError != "" })
		for _, c := range talks {
			c.say(t, "still there?")
			c.end(t, "still there?")
		}
		runs, err := ws.ReadFile(t.Context(), "runs")
		if err != nil || string(runs) != strings.Repeat("ran\n", n) {
			t.Errorf("%q, %v", runs, err)
		}
		b.alone(t)
	}
}

// TestARunGoesBackWhereTheNewOneHasItNot and moves when the next one has.
func TestARunGoesBackWhereTheNewOneHasItNot(t *testing.T) {
	b := newBed(t, lasting)
	ws := b.workspace(t)
	c := talk(t, ws)
	old := b.status().PID
	b.swap(t, blind)
	c.say(t, "one")
	poll(t, "its answer", c.out.has("heard one\n"))
	if st := b.status(); st.Leaving != 1 || parentOf(old) == 0 {
		t.Errorf("%+v", st)
	}
	b.swap(t, versionB)
	c.say(t, "two")
	b.alone(t)
	c.end(t, "one", "two")
}

// TestCommandsThatSucceededLeaveTheirChildren also when their plugin leaves.
func TestCommandsThatSucceededLeaveTheirChildren(t *testing.T) {
	b := newBed(t, plain)
	ws := b.workspace(t)
	if _, err := ws.Run(t.Context(), workspace.Command{Script: "(while [ ! -e stop ]; do sleep 0.02; done; echo went on > word) >/dev/null 2>&1 &"}); err != nil {
		t.Fatal(err)
	}
	b.swap(t, versionB)
	b.alone(t)
	if err := ws.WriteFile(t.Context(), "stop", nil); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	poll(t, "its word", func() bool {
		got, err := os.ReadFile(filepath.Join(b.root, ref.ID, "word"))
		return err == nil && string(got) == "went on\n"
	})
}
