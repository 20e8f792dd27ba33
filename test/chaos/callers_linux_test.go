package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/internal/model"
)

const (
	// callLimit is far more than any of the calls takes by itself, and than a host
	// takes to notice and replace a plugin.
	callLimit = 90 * time.Second
	maxFile   = 200 << 10
	// ranFile is where commands note that they ran.
	ranFile = "ran"
)

// tally counts what the callers of a provider saw.
type tally struct{ done, broken atomic.Int64 }

// caller works in a workspace and knows what each answer must be.
type caller struct {
	t      *testing.T
	ws     workspace.Workspace
	name   string
	random *rand.Rand
	tally  *tally
	// lasting: commands go on without their plugin, and none may be lost.
	lasting bool
	ledger  *ledger
	file    model.File
}

// ledger holds the commands of a workspace by what became of them.
type ledger struct {
	mu              sync.Mutex
	ran, mayHaveRun []string
}

func (l *ledger) note(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.ran = append(l.ran, id)
	} else {
		l.mayHaveRun = append(l.mayHaveRun, id)
	}
}

// check compares with what the commands noted themselves.
func (l *ledger) check(t *testing.T, ws workspace.Workspace) {
	t.Helper()
	data, err := ws.ReadFile(t.Context(), ranFile)
	if err != nil {
		t.Errorf("what ran: %v", err)
		return
	}
	times := map[string]int{}
	for id := range strings.Lines(string(data)) {
		times[strings.TrimSuffix(id, "\n")]++
	}
	for _, id := range l.ran {
		if times[id] != 1 {
			t.Errorf("command %s was acknowledged and ran %d times", id, times[id])
		}
		delete(times, id)
	}
	for id, n := range times {
		if n != 1 || !slices.Contains(l.mayHaveRun, id) {
			t.Errorf("command %s ran %d times, and nobody asked for that", id, n)
		}
	}
}

// work goes on until ctx ends. Some of steps is done each time.
func (c *caller) work(ctx context.Context, steps ...func(context.Context, int)) {
	for round := 0; ctx.Err() == nil; round++ {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
		steps[c.random.IntN(len(steps))](call, round)
		if call.Err() != nil {
			c.t.Errorf("%s: a call took %v", c.name, callLimit)
		}
		cancel()
		c.tally.done.Add(1)
	}
}

// broken is for a call that something happened to.
func (c *caller) broken(what string, err error) {
	c.tally.broken.Add(1)
	var plugin *workspace.PluginError
	if !errors.As(err, &plugin) && !errors.Is(err, workspace.ErrTransient) {
		c.t.Errorf("%s: %s: an error of no kind: %v", c.name, what, err)
	}
}

func (c *caller) write(ctx context.Context, _ int) {
	data := make([]byte, c.random.IntN(maxFile))
	for i := range data {
		data[i] = byte(c.random.Uint32())
	}
	if err := c.ws.WriteFile(ctx, c.name, data); err != nil {
		c.file.MayHaveWritten(data)
		c.broken("write", err)
		return
	}
	c.file.Wrote(data)
}

func (c *caller) read(ctx context.Context, _ int) {
	data, err := c.ws.ReadFile(ctx, c.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !c.file.MayBeAbsent() {
			c.t.Errorf("%s: what was written is gone", c.name)
		}
	case err != nil:
		c.broken("read", err)
	case !c.file.Is(data):
		c.t.Errorf("%s: a read of %d bytes that nobody wrote, want one of %d contents", c.name, len(data), c.file.Contents())
	}
}

// run notes its own id in a file, and gives back its input.
func (c *caller) run(ctx context.Context, round int) {
	id := fmt.Sprintf("%s-%d", c.name, round)
	in := strings.Repeat(id+"\n", c.random.IntN(2000))
	script := fmt.Sprintf("echo %s >> %s; sleep 0.%d; cat; exit 3", id, ranFile, c.random.IntN(5))
	_, made := c.ws.Ref()
	res, err := c.ws.Run(ctx, workspace.Command{Script: script, Stdin: strings.NewReader(in)})
	c.ledger.note(id, err)
	switch {
	case err != nil && c.lasting && (made || wasSent(err)):
		c.t.Errorf("%s: a command was lost: %v", c.name, err)
	case err != nil:
		c.broken("run", err)
	case res.ExitCode != 3 || string(res.Stdout) != in || len(res.Stderr) > 0:
		c.t.Errorf("%s: exit code %d with %d bytes, want 3 with %d (%.200s)", c.name, res.ExitCode, len(res.Stdout), len(in), res.Stderr)
	}
}

// wasSent reports whether an error is of a command, and not of the making of its
// workspace: one whose plugin dies of it fails (contract B2), and nothing is sent then.
func wasSent(err error) bool {
	var plugin *workspace.PluginError
	return !errors.As(err, &plugin) || plugin.RunID != ""
}

// ask asks a plugin that misbehaves for something.
func (c *caller) ask(path string) func(context.Context, int) {
	return func(ctx context.Context, _ int) {
		if _, err := c.ws.Stat(ctx, path); err != nil {
			c.broken(path, err)
		}
	}
}

// pause keeps one caller from using a processor up with calls that do nothing.
func (c *caller) pause(ctx context.Context, _ int) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}
