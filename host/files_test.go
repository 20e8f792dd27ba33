package host_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

type readStream = grpc.ServerStreamingServer[berthv1.ReadFileResponse]

func readInfo(size int64) *berthv1.ReadFileResponse {
	return &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Info{Info: &berthv1.FileInfo{Name: []byte("f"), Size: size, Mode: 0o100644}}}
}

func readData(data string) *berthv1.ReadFileResponse {
	return &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte(data)}}
}

func readEnd(n int64) *berthv1.ReadFileResponse {
	return &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_End{End: n}}
}

func reads(messages ...*berthv1.ReadFileResponse) *raw {
	return &raw{readFile: func(_ *berthv1.ReadFileRequest, stream readStream) error {
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}}
}

// TestF2_AFileIsWholeOrAnError: no stream that ends early looks like a file.
func TestF2_AFileIsWholeOrAnError(t *testing.T) {
	if data, err := newWorkspace(t, reads(readInfo(4), readData("ab"), readData("cd"), readEnd(4))).ReadFile(t.Context(), "f"); err != nil || string(data) != "abcd" {
		t.Errorf("%q, %v", data, err)
	}
	// A size that is not true is no more than a hint.
	if data, err := newWorkspace(t, reads(readInfo(1<<60), readData("ab"), readEnd(2))).ReadFile(t.Context(), "f"); err != nil || string(data) != "ab" {
		t.Errorf("%q, %v", data, err)
	}
	for name, messages := range map[string][]*berthv1.ReadFileResponse{
		"nothing":         nil,
		"no info":         {readData("ab"), readEnd(2)},
		"no end":          {readInfo(2), readData("ab")},
		"a wrong end":     {readInfo(2), readData("ab"), readEnd(3)},
		"two infos":       {readInfo(2), readInfo(2)},
		"an empty answer": {readInfo(2), {}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newWorkspace(t, reads(messages...)).ReadFile(t.Context(), "f")
			var plug *workspace.PluginError
			if !errors.As(err, &plug) || plug.MayHaveExecuted {
				t.Error(err)
			}
		})
	}
	t.Run("more than asked for", func(t *testing.T) {
		r, err := newWorkspace(t, reads(readInfo(9), readData("abc"), readEnd(3))).Open(t.Context(), "f", workspace.ReadOptions{Length: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var plug *workspace.PluginError
		if data, err := io.ReadAll(r); !errors.As(err, &plug) {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestF8_AnIdleStreamEndsButNotForAPausedReader(t *testing.T) {
	t.Parallel()
	p := &raw{readFile: func(req *berthv1.ReadFileRequest, stream readStream) error {
		if err := stream.Send(readInfo(2)); err != nil {
			return err
		}
		if err := stream.Send(readData("ab")); err != nil {
			return err
		}
		if string(req.GetPath()) == "hangs" {
			<-stream.Context().Done()
			return nil
		}
		return stream.Send(readEnd(2))
	}}
	const idle = 2 * time.Second // what is on its way may be late on a busy machine
	ws := newWorkspace(t, p, func(c *host.Config) { c.Deadlines.Idle = idle })
	r, err := ws.Open(t.Context(), "f", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	time.Sleep(idle + idle/2) // our own pause, which does not count
	if data, err := io.ReadAll(r); err != nil || string(data) != "ab" {
		t.Errorf("%q, %v", data, err)
	}
	var plug *workspace.PluginError
	if _, err := ws.ReadFile(t.Context(), "hangs"); !errors.As(err, &plug) || !strings.Contains(plug.Reason, "no progress") {
		t.Error(err)
	}
}

func TestReaderEndsWithItsContextAndItsClose(t *testing.T) {
	entered := make(chan struct{}, 2)
	p := &raw{readFile: func(_ *berthv1.ReadFileRequest, stream readStream) error {
		if err := stream.Send(readInfo(2)); err != nil {
			return err
		}
		entered <- struct{}{}
		<-stream.Context().Done()
		return stream.Context().Err()
	}}
	ws := newWorkspace(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := ws.Open(ctx, "f", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r, err = ws.Open(t.Context(), "f", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	done := make(chan error)
	go func() { _, err := r.Read(make([]byte, 1)); done <- err }()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a read of a closed reader succeeded")
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
}

// TestAReaderIsClosedWhileACallersWriterBlocks: neither Close nor the end of the
// context waits for a writer that io.Copy waits for.
func TestAReaderIsClosedWhileACallersWriterBlocks(t *testing.T) {
	h := newHost(t, reads(readInfo(4), readData("ab"), readData("cd"), readEnd(4)))
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(io.Closer, context.CancelFunc){
		"closed":    func(r io.Closer, _ context.CancelFunc) { r.Close() },
		"cancelled": func(_ io.Closer, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := ws.Open(ctx, "f", workspace.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			blocked, entered, copied := newGate(t), make(chan struct{}, 2), make(chan error, 1)
			go func() {
				_, err := io.Copy(writerFunc(func(p []byte) (int, error) {
					entered <- struct{}{}
					<-blocked.ch
					return len(p), nil
				}), r)
				copied <- err
			}()
			<-entered
			ended := make(chan struct{})
			go func() { defer close(ended); end(r, cancel) }()
			waitFor(t, "the end of the reader", func() bool {
				select {
				case <-ended:
					_, err := r.Read(make([]byte, 1))
					return errors.Is(err, fs.ErrClosed) || errors.Is(err, context.Canceled)
				default:
					return false
				}
			})
			blocked.open()
			if err := <-copied; err == nil {
				t.Error("a copy whose reader had ended succeeded")
			}
		})
	}
}

// TestAReaderThatNobodyClosesHoldsNothingAfterItsContext: otherwise it would hold
// back a shutdown.
func TestAReaderThatNobodyClosesHoldsNothingAfterItsContext(t *testing.T) {
	h := newHost(t, &raw{
		readFile: func(_ *berthv1.ReadFileRequest, stream readStream) error {
			if err := stream.Send(readInfo(1)); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		},
		writeFile: func(stream writeStream) error { <-stream.Context().Done(); return nil },
	})
	ws, err := h.Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := ws.Open(ctx, "f", workspace.ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := ws.Create(ctx, "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := h.Providers()[0].InFlight; n != 2 {
		t.Errorf("%d in flight", n)
	}
	cancel()
	waitFor(t, "the end of both", func() bool { return h.Providers()[0].InFlight == 0 })
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
