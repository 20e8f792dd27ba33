package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// echo is a command that takes its input as it comes and repeats it.
func echo(start *berthv1.RunStart, stream runStream) error {
	if !start.GetStdin() {
		return send(stream, started(), exited(0, 0, 0))
	}
	if err := send(stream, started()); err != nil {
		return err
	}
	var n int64
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case msg.GetStdin() != nil:
			if msg.GetStdin().GetOffset() != n {
				return fmt.Errorf("stdin at %d, not %d", msg.GetStdin().GetOffset(), n)
			}
			data := msg.GetStdin().GetData()
			if err := send(stream, stdout(n, string(data))); err != nil {
				return err
			}
			n += int64(len(data))
			if err := send(stream, &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: &berthv1.RunStdinTaken{Offset: n}}}); err != nil {
				return err
			}
		case msg.GetStdinEnd() != nil:
			if msg.GetStdinEnd().GetOffset() != n {
				return fmt.Errorf("stdin ends at %d, not %d", msg.GetStdinEnd().GetOffset(), n)
			}
			return send(stream, exited(0, n, 0))
		}
	}
}

func TestStdinStreamsThroughItsWindow(t *testing.T) {
	ws := newWorkspace(t, runner(echo))
	input := bytes.Repeat([]byte("0123456789"), 500_000)
	cmd := command()
	cmd.Stdin = bytes.NewReader(input)
	res, err := ws.Run(t.Context(), cmd)
	if err != nil || !bytes.Equal(res.Stdout, input) {
		t.Errorf("%d bytes, %v", len(res.Stdout), err)
	}
}

func TestStdinThatIsNotTakenIsBounded(t *testing.T) {
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		for n := 0; n < wire.RunWindow; {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			n += len(msg.GetStdin().GetData())
		}
		time.Sleep(50 * time.Millisecond) // in which nothing more may come
		return send(stream, exited(0, 0, 0))
	}))
	var read atomic.Int64
	cmd := command()
	cmd.Stdin = readerFunc(func(p []byte) (int, error) { read.Add(int64(len(p))); return len(p), nil })
	if _, err := ws.Run(t.Context(), cmd); err != nil {
		t.Error(err)
	}
	if n := read.Load(); n != wire.RunWindow {
		t.Errorf("%d bytes read ahead", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestStdinThatBlocksDelaysNothing(t *testing.T) {
	release := newGate(t)
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		return send(stream, started(), exited(0, 0, 0))
	}))
	cmd := command()
	cmd.Stdin = readerFunc(func([]byte) (int, error) { <-release.ch; return 0, io.EOF })
	if _, err := ws.Run(t.Context(), cmd); err != nil {
		t.Error(err)
	}
}

func TestStdinThatFailsStopsTheCommand(t *testing.T) {
	failure := errors.New("torn")
	ws := newWorkspace(t, runner(func(_ *berthv1.RunStart, stream runStream) error {
		if err := send(stream, started()); err != nil {
			return err
		}
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			if msg.GetStdinEnd() != nil {
				t.Error("a torn input was ended as if it were whole")
			}
			if msg.GetStop() != nil {
				return send(stream, exited(143, 0, 0))
			}
		}
	}))
	cmd := command()
	cmd.Stdin = readerFunc(func([]byte) (int, error) { return 0, failure })
	if _, err := ws.Run(t.Context(), cmd); !errors.Is(err, failure) {
		t.Error(err)
	}
}
