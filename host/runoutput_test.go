package host_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// pattern writes total bytes to stdout in odd pieces, byte i being i%251, and
// keeps to the window; sent counts them. A stop ends it.
func pattern(total int64, sent *atomic.Int64) func(*berthv1.RunStart, runStream) error {
	return func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		taken, stop := make(chan int64, 1000), make(chan struct{})
		go func() {
			defer close(stop)
			for {
				msg, err := stream.Recv()
				if err != nil || msg.GetStop() != nil {
					return
				}
				if m := msg.GetTaken(); m != nil {
					taken <- m.GetStdoutOffset()
				}
			}
		}()
		buf := make([]byte, 99_999)
		have := int64(0)
		for offset := int64(0); offset < total; sent.Store(offset) {
			n := min(int64(len(buf)), total-offset)
			for offset+n-have > wire.RunWindow {
				select {
				case have = <-taken:
				case <-stop:
					return send(stream, ended(context.Canceled, offset))
				}
			}
			for i := range n {
				buf[i] = byte((offset + i) % 251)
			}
			if err := send(stream, stdout(offset, string(buf[:n]))); err != nil {
				return err
			}
			offset += n
		}
		return send(stream, exited(0, total, 0))
	}
}

// TestC10_AWriterThatBlocksHoldsBackItsOwnCommandAlone: the plugin stops at its
// window, other calls go on, and a cancelled wait returns.
func TestC10_AWriterThatBlocksHoldsBackItsOwnCommandAlone(t *testing.T) {
	var sent, received atomic.Int64
	ws := newWorkspace(t, runner(pattern(64<<20, &sent)))
	release := newGate(t)
	cmd := command()
	cmd.Stdout = writerFunc(func(b []byte) (int, error) {
		if received.Add(int64(len(b))) > 4*wire.RunWindow { // the first ones are taken, then it blocks
			<-release.ch
		}
		return len(b), nil
	})
	cmd.Stderr, cmd.OutputLimit = io.Discard, workspace.NoOutputLimit
	ctx, cancel := context.WithCancel(t.Context())
	proc, err := ws.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the window to be full", func() bool { return sent.Load() >= 5*wire.RunWindow-4*wire.ChunkSize })
	for range 20 {
		if _, err := ws.Stat(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
	}
	if n := sent.Load(); n > 6*wire.RunWindow {
		t.Errorf("%d bytes sent", n)
	}
	cancel()
	if _, err := proc.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestC4_ASlowWriterGetsEveryByteInOrder(t *testing.T) {
	const total = 5<<20 + 77
	var sent atomic.Int64
	ws := newWorkspace(t, runner(pattern(total, &sent)))
	var got bytes.Buffer
	cmd := command()
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		time.Sleep(time.Millisecond) // slow is the point
		return got.Write(p)
	})
	if _, err := ws.Run(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	if got.Len() != total {
		t.Fatalf("%d bytes", got.Len())
	}
	for i, b := range got.Bytes() {
		if b != byte(i%251) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestAWriterThatBlocksForEverDoesNotHoldBackTheTimeout(t *testing.T) {
	blocked := newGate(t)
	for name, last := range map[string]*berthv1.RunResponse{
		"stopped by the plugin": ended(&workspace.TimeoutError{Timeout: 300 * time.Millisecond}, 1),
		"over before":           exited(0, 1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
				return send(stream, started(), stdout(0, "x"), last)
			}))
			cmd := command()
			cmd.Timeout = 300 * time.Millisecond
			cmd.Stdout = writerFunc(func(p []byte) (int, error) { <-blocked.ch; return len(p), nil })
			_, err := ws.Run(t.Context(), cmd)
			var timeout *workspace.TimeoutError
			if !errors.As(err, &timeout) || string(timeout.Stdout) != "x" {
				t.Error(err)
			}
		})
	}
}

func TestAWriterThatFailsStopsTheCommand(t *testing.T) {
	failure := errors.New("disk full")
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started(), stdout(0, "x")); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStop() != nil {
				return send(stream, exited(143, 1, 0))
			}
		}
	}))
	cmd := command()
	cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, failure })
	if _, err := ws.Run(t.Context(), cmd); !errors.Is(err, failure) || !strings.Contains(err.Error(), "writing stdout") {
		t.Error(err)
	}
}

func TestStdoutAndStderrMayBeOneWriter(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		return send(stream, started(), stdout(0, "aaa"), stderr(0, "bbb"), exited(0, 3, 3))
	}))
	var out bytes.Buffer
	cmd := command()
	cmd.Stdout, cmd.Stderr = &out, &out
	if _, err := ws.Run(t.Context(), cmd); err != nil || out.Len() != 6 {
		t.Errorf("%q, %v", out.String(), err)
	}
}
