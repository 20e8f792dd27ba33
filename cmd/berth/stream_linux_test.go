package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/cmd/berth/internal/transfer"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// morePipe is more than any pipe holds.
const morePipe = 2 << 20

// waiting is what somebody outside does and does not do, so that berth waits
// for them, and is then told to end.
type waiting struct {
	name string
	// begin gives the app its streams, and returns what berth then does, and what
	// returns when it waits.
	begin func(t *testing.T, a *app, ref workspace.Ref) (work func(context.Context) error, until func())
}

// However long others keep berth waiting, one Ctrl-C ends it.
func TestWaitingForOthersEndsWithBerth(t *testing.T) {
	for _, w := range []waiting{
		{"for more input", func(t *testing.T, a *app, ref workspace.Ref) (func(context.Context) error, func()) {
			r, w := pipe(t)
			a.stdin = r
			work := func(ctx context.Context) error {
				return a.cp(ctx, transfer.Place{Stream: true}, transfer.Place{Ref: ref, Path: "f"}, true)
			}
			return work, func() {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				waitUntilRead(t, r)
			}
		}},
		{"for the reader of its output", func(t *testing.T, a *app, ref workspace.Ref) (func(context.Context) error, func()) {
			r, w := pipe(t)
			a.stdout.file = w
			work := func(ctx context.Context) error {
				return a.cp(ctx, transfer.Place{Ref: ref, Path: "large"}, transfer.Place{Stream: true}, true)
			}
			return work, func() { readOne(t, r) }
		}},
		{"for the reader of a FIFO", func(t *testing.T, a *app, ref workspace.Ref) (func(context.Context) error, func()) {
			fifo := makeFIFO(t)
			work := func(ctx context.Context) error {
				return a.cp(ctx, transfer.Place{Ref: ref, Path: "large"}, transfer.Place{Path: fifo}, true)
			}
			return work, func() {
				r, err := os.Open(fifo)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { r.Close() })
				readOne(t, r)
			}
		}},
		{"for a FIFO to be read", func(t *testing.T, a *app, ref workspace.Ref) (func(context.Context) error, func()) {
			fifo := makeFIFO(t)
			return func(context.Context) error {
				_, err := a.createRefFile(fifo)
				return err
			}, func() {}
		}},
	} {
		t.Run(w.name, func(t *testing.T) {
			a, _, _ := newTestApp(t, state.Plugin("test"))
			ref := largeFile(t, a)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a.endWith(ctx)
			work, until := w.begin(t, a, ref)
			ended := make(chan error, 1)
			go func() { ended <- work(ctx) }()
			until()
			cancel()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(scriptTimeout):
				t.Fatal("it still waits")
			}
		})
	}
}

// What is said at the end is heard by who listens, and a stuck terminal is not
// waited for again and again.
func TestAStreamAfterTheEnd(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	r, w := pipe(t)
	s := &stream{file: w, ended: ended}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Errorf("a write that is read: %v", err)
	}
	readOne(t, r)
	for range 3 {
		if _, err := s.Write(make([]byte, morePipe)); !errors.Is(err, context.Canceled) {
			t.Errorf("a write that nobody reads: %v", err)
		}
	}
}

// What nobody could be told is a failure, whoever dropped the error.
func TestAHelpThatCannotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	a, _, _ := newTestApp(t, nil)
	a.stdout.file = full
	if code := a.run([]string{"--help"}); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
}

func largeFile(t *testing.T, a *app) workspace.Ref {
	t.Helper()
	ws, err := a.host.Workspace("notes", workspace.WithName("n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile(t.Context(), "large", make([]byte, morePipe)); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	return ref
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

func makeFIFO(t *testing.T) string {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// What berth leaves waiting for a reader is let go.
	t.Cleanup(func() {
		if r, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			r.Close()
		}
	})
	return fifo
}

// waitUntilRead waits until a pipe is empty.
func waitUntilRead(t *testing.T, r *os.File) {
	t.Helper()
	for deadline := time.Now().Add(scriptTimeout); ; time.Sleep(pollInterval) {
		left, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		switch {
		case err != nil:
			t.Fatal(err)
		case left == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d bytes are not read", left)
		}
	}
}

func readOne(t *testing.T, r *os.File) {
	t.Helper()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}
