package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func outputChecks() []check {
	return []check{
		{name: "C4_StreamsAreApart", needs: commands, run: checkStreamsApart},
		{name: "C4_OutputIsExact", needs: commands, run: checkExactOutput},
		{name: "C4_LargeOutputIsComplete", needs: commands, run: checkLargeOutput},
		{name: "C4_ShortCommandsLoseNothing", needs: commands, run: checkShortCommands},
		{name: "C4_TextReplacesEachBadByte", needs: commands, run: checkText},
		{name: "C4_OutputStreamsAsItArrives", needs: commands, run: checkStreaming},
	}
}

func limitChecks() []check {
	return []check{
		{name: "C7_LimitStopsTheCommand", needs: commands, run: checkLimit},
		{name: "C7_DefaultIs10MiBForBothStreams", needs: commands, run: checkDefaultLimit},
		{name: "C7_StreamedOutputIsLimitedToo", needs: commands, run: checkStreamedLimit},
		{name: "C7_StreamedOutputMayLiftTheLimit", needs: commands, run: checkNoLimit},
	}
}

func checkStreamsApart(t testing.TB, e *env) {
	res := e.success(t, e.cmd(t, "print", hexOf([]byte("out")), hexOf([]byte("err"))))
	if string(res.Stdout) != "out" || string(res.Stderr) != "err" {
		t.Errorf("stdout %q, stderr %q, want out and err", res.Stdout, res.Stderr)
	}
}

// oddOutputs are bytes that a text format, a terminal or a decoder changes.
func oddOutputs() [][]byte {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return [][]byte{
		every, {}, []byte("x"), []byte("no newline"), []byte("newline\n"), []byte("\n"), []byte("\n\n  \n"), []byte("a\r\nb\r\n"), []byte(" \t "),
		{0}, []byte("a\x00b\x00"), []byte("\xff\xfe"), []byte("\x1b[31mred\x1b[0m"), []byte("\ufeffbom"), []byte("\x04"), []byte("half a rune \xe2\x82"),
	}
}

func checkExactOutput(t testing.TB, e *env) {
	for _, want := range oddOutputs() {
		res := e.success(t, e.cmd(t, "print", hexOf(want), hexOf(want)))
		if !bytes.Equal(res.Stdout, want) {
			t.Errorf("stdout: %s", difference(res.Stdout, want))
		}
		if !bytes.Equal(res.Stderr, want) {
			t.Errorf("stderr: %s", difference(res.Stderr, want))
		}
	}
}

const (
	largeOutput = 8 << 20 // moby#49655, kubernetes#124571
	largeTimes  = 3
)

func checkLargeOutput(t testing.TB, e *env) {
	want := pattern.Bytes(largeOutput)
	for range largeTimes {
		res := e.success(t, e.cmd(t, "pattern", strconv.Itoa(len(want)), "0"))
		if !bytes.Equal(res.Stdout, want) {
			t.Fatalf("8 MiB of stdout: %s", difference(res.Stdout, want))
		}
	}
	res := e.success(t, e.cmd(t, "pattern", strconv.Itoa(len(want)/2), strconv.Itoa(len(want)/2)))
	if !bytes.Equal(res.Stdout, want[:len(want)/2]) || !bytes.Equal(res.Stderr, want[:len(want)/2]) {
		t.Errorf("4 MiB of each stream: stdout %s, stderr %s", difference(res.Stdout, want[:len(want)/2]), difference(res.Stderr, want[:len(want)/2]))
	}
}

const (
	shortCommands = 500 // moby#27289, #31368
	shortAtOnce   = 4
)

func checkShortCommands(t testing.TB, e *env) {
	cmd := e.cmd(t, "print", hexOf([]byte("x")), hexOf([]byte("y")))
	ws, ctx := e.shared(t), e.context(t)
	errs := make([]error, shortAtOnce)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := range shortCommands / shortAtOnce {
				res, err := ws.Run(ctx, cmd)
				if err != nil || string(res.Stdout) != "x" || string(res.Stderr) != "y" {
					errs[i] = fmt.Errorf("short command %d: %s, want stdout x, stderr y", n, outcome(res, err))
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func checkText(t testing.TB, e *env) {
	out, text := "a\xff\xfeb\xe2\x82c€", "a\ufffd\ufffdb\ufffd\ufffdc€"
	res := e.success(t, e.cmd(t, "print", hexOf([]byte(out)), hexOf([]byte(out))))
	if res.StdoutText() != text || res.StderrText() != text {
		t.Errorf("the text of %q is %q and %q, want %q", out, res.StdoutText(), res.StderrText(), text)
	}
}

// checkStreaming lets the command wait for what we say after its first line.
func checkStreaming(t testing.TB, e *env) {
	r, w := io.Pipe()
	defer w.Close()
	cmd := e.cmd(t, "ask")
	cmd.Stdin = r
	out := newLineWriter()
	cmd.Stdout = out
	p, err := e.shared(t).Start(e.context(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	next := func() string { return out.next(t, e, "a line of a command that goes on") }
	if line := next(); line != "ready" {
		t.Fatalf("the command said %q, want ready", line)
	}
	if _, err := io.WriteString(w, "go on\n"); err != nil {
		t.Fatal(err)
	}
	if line := next(); line != "go on" {
		t.Errorf("the command said %q, want what it was told", line)
	}
	w.Close()
	if res, err := e.wait(t, p, "the command"); err != nil || res.ExitCode != 0 {
		t.Errorf("the command: %s", outcome(res, err))
	}
}

// beginnings are what the error of a stopped command keeps.
type beginnings struct{ stdout, stderr []byte }

// wantLimit expects an *OutputLimitError and returns what it keeps.
func wantLimit(t testing.TB, what string, res *workspace.Result, err error, limit int64) beginnings {
	t.Helper()
	var over *workspace.OutputLimitError
	if !errors.As(err, &over) {
		t.Fatalf("%s: %s, want an *OutputLimitError", what, outcome(res, err))
	}
	if over.Limit != limit {
		t.Errorf("%s: the error tells a limit of %d, want %d", what, over.Limit, limit)
	}
	if over.Survivors != "" {
		t.Errorf("%s: not stopped: %s", what, over.Survivors)
	}
	return beginnings{over.Stdout, over.Stderr}
}

func checkLimit(t testing.TB, e *env) {
	const limit = 200_000
	cmd := e.cmd(t, "yes")
	cmd.OutputLimit = limit
	res, err := e.run(t, cmd)
	kept := wantLimit(t, "endless output", res, err, limit)
	if want := pattern.Bytes(workspace.PartialOutput); !bytes.Equal(kept.stdout, want) {
		t.Errorf("the error keeps %s", difference(kept.stdout, want))
	}
	cmd = e.cmd(t, "pattern", "3000", "0")
	cmd.OutputLimit = 2999
	res, err = e.run(t, cmd)
	kept = wantLimit(t, "3000 bytes", res, err, 2999)
	if want := pattern.Bytes(2999); !bytes.HasPrefix(pattern.Bytes(3000), kept.stdout) || len(kept.stdout) < len(want) {
		t.Errorf("the error keeps %s", difference(kept.stdout, want))
	}
	cmd = e.cmd(t, "pattern", "100", "3000")
	cmd.OutputLimit = 2999
	res, err = e.run(t, cmd)
	kept = wantLimit(t, "3000 bytes on stderr", res, err, 2999)
	if !bytes.HasPrefix(pattern.Bytes(3000), kept.stderr) || len(kept.stderr) < 2899 {
		t.Errorf("of stderr the error keeps %s", difference(kept.stderr, pattern.Bytes(2899)))
	}
	// It is stopped with all that it started.
	pids := e.pids(t)
	cmd = e.cmd(t, append([]string{"tree", pids, "flood"}, escapes()...)...)
	cmd.OutputLimit = limit
	res, err = e.run(t, cmd)
	wantLimit(t, "endless output of a tree", res, err, limit)
	if left := e.alive(t, pids); len(left) > 0 {
		t.Errorf("stopped at its limit, and %d processes are left", len(left))
	}
}

func checkDefaultLimit(t testing.TB, e *env) {
	const limit = workspace.DefaultOutputLimit
	half := strconv.Itoa(limit / 2)
	if res, err := e.run(t, e.cmd(t, "pattern", half, half)); err != nil || len(res.Stdout) != limit/2 || len(res.Stderr) != limit/2 {
		t.Errorf("10 MiB, just the limit: %.200s, want all of it", outcome(res, err))
	}
	res, err := e.run(t, e.cmd(t, "pattern", half, strconv.Itoa(limit/2+1)))
	wantLimit(t, "a byte more than 10 MiB on both streams together", res, err, limit)
}

func checkStreamedLimit(t testing.TB, e *env) {
	const limit = 100_000
	var out bytes.Buffer
	cmd := e.cmd(t, "yes")
	cmd.Stdout, cmd.Stderr, cmd.OutputLimit = &out, io.Discard, limit
	res, err := e.run(t, cmd)
	kept := wantLimit(t, "endless streamed output", res, err, limit)
	if !bytes.Equal(out.Bytes(), pattern.Bytes(out.Len())) {
		t.Errorf("what was streamed: %s", difference(out.Bytes(), pattern.Bytes(out.Len())))
	}
	if want := pattern.Bytes(workspace.PartialOutput); !bytes.Equal(kept.stdout, want) {
		t.Errorf("the error keeps %s", difference(kept.stdout, want))
	}
}

// checkBytes compares a stream with the pattern and keeps nothing.
type checkBytes struct {
	n   int64
	bad string
}

func (c *checkBytes) Write(b []byte) (int, error) {
	want := make([]byte, len(b))
	pattern.Fill(want, c.n)
	if c.bad == "" && !bytes.Equal(b, want) {
		c.bad = fmt.Sprintf("after byte %d: %s", c.n, difference(b, want))
	}
	c.n += int64(len(b))
	return len(b), nil
}

func checkNoLimit(t testing.TB, e *env) {
	const n = workspace.DefaultOutputLimit + 3<<20
	var out checkBytes
	cmd := e.cmd(t, "pattern", strconv.Itoa(n), "0")
	cmd.Stdout, cmd.Stderr, cmd.OutputLimit = &out, io.Discard, workspace.NoOutputLimit
	res, err := e.run(t, cmd)
	if err != nil || res.ExitCode != 0 || out.n != n || out.bad != "" {
		t.Errorf("13 MiB streamed without a limit: got %d bytes; %s; %s", out.n, out.bad, strings.TrimSpace(outcome(res, err)))
	}
}
