package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
)

// pulling reports what it does before it makes a workspace, until it was seen.
type pulling struct {
	sdk.Provider
	seen <-chan struct{}
}

func (p *pulling) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	for i := int64(1); ; i++ {
		sdk.Report(ctx, sdk.Progress{Text: "pulling busybox", Done: i << 20, Total: 1 << 40, Unit: "bytes"})
		select {
		case <-p.seen:
			return p.Provider.Create(ctx, req)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond): // the next piece has arrived
		}
	}
}

// terminal returns the two ends of one: what is written to tty is read by the
// returned function.
func terminal(t *testing.T) (tty *os.File, screen func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			text.Write(buf[:n])
			mu.Unlock()
			if err != nil { // when the other end is closed
				return
			}
		}
	}()
	t.Cleanup(func() {
		tty.Close()
		<-done
		master.Close()
	})
	return tty, func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

func newPullingApp(t *testing.T, seen <-chan struct{}) (a *app, stderr string) {
	t.Helper()
	plugin := state.Plugin("test")
	newState := plugin.New
	plugin.New = func(ctx context.Context, config state.Config, env sdk.Env) (sdk.Provider, error) {
		p, err := newState(ctx, config, env)
		return &pulling{p, seen}, err
	}
	a, _, stderr = newTestApp(t, plugin)
	return a, stderr
}

// What an opening does is one line on a terminal, which is gone when it is done.
func TestAPersonSeesWhatAnOpeningDoes(t *testing.T) {
	seen := make(chan struct{})
	a, _ := newPullingApp(t, seen)
	tty, screen := terminal(t)
	a.stderr.file = tty
	opened := make(chan error, 1)
	go func() { opened <- a.open(t.Context(), "notes", &openFlags{}, nil, false) }()
	for deadline := time.Now().Add(scriptTimeout); !strings.Contains(screen(), " MiB of 1.0 TiB"); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("on the terminal: %q", screen())
		}
	}
	close(seen)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	a.say("done")
	for deadline := time.Now().Add(scriptTimeout); !strings.Contains(screen(), "berth: done"); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("on the terminal: %q", screen())
		}
	}
	got := screen()
	if strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, eraseLine+"pulling busybox  ") || !strings.Contains(got, eraseLine+"berth: done") {
		t.Errorf("on the terminal: %q", got)
	}
}

// A program that reads stderr is not told.
func TestAFileIsNotToldWhatAnOpeningDoes(t *testing.T) {
	seen := make(chan struct{})
	close(seen)
	a, stderr := newPullingApp(t, seen)
	if err := a.open(t.Context(), "notes", &openFlags{}, nil, false); err != nil {
		t.Fatal(err)
	}
	if got := read(t, stderr); got != "" {
		t.Errorf("on stderr: %q", got)
	}
}
