package host_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

type writeStream = grpc.ClientStreamingServer[berthv1.WriteFileRequest, berthv1.WriteFileResponse]

func TestWriter(t *testing.T) {
	type file struct {
		start *berthv1.WriteFileStart
		data  string
		ended bool
	}
	files := make(chan file, 1)
	p := &raw{writeFile: func(stream writeStream) error {
		var f file
		defer func() { files <- f }()
		for {
			msg, err := stream.Recv()
			if err != nil {
				return err
			}
			switch m := msg.GetMessage().(type) {
			case *berthv1.WriteFileRequest_Start:
				f.start = m.Start
				if string(m.Start.GetPath()) == "/full" {
					return wire.ToStatus(&fs.PathError{Op: "write", Path: "/elsewhere", Err: syscall.ENOSPC})
				}
			case *berthv1.WriteFileRequest_Data:
				if len(m.Data) > wire.ChunkSize {
					t.Errorf("a chunk of %d bytes", len(m.Data))
				}
				f.data += string(m.Data)
			case *berthv1.WriteFileRequest_End:
				f.ended = true
				if m.End != int64(len(f.data)) {
					t.Errorf("end %d of %d bytes", m.End, len(f.data))
				}
				written := int64(len(f.data))
				if f.data == "short" {
					written--
				}
				return stream.SendAndClose(&berthv1.WriteFileResponse{Written: written})
			}
		}
	}}
	ws := newWorkspace(t, p)
	ctx := t.Context()

	long := strings.Repeat("x", 3*wire.ChunkSize+1)
	if err := ws.WriteFile(ctx, "f", []byte(long)); err != nil {
		t.Fatal(err)
	}
	if f := <-files; f.data != long || !f.ended || f.start.Mode != nil {
		t.Errorf("%d bytes, ended %v, mode %v", len(f.data), f.ended, f.start.Mode)
	}

	w, err := ws.Create(ctx, "f", workspace.WriteOptions{Mode: 0o640 | fs.ModeSetgid, Exclusive: true, ModTime: time.Unix(5, 6)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a write after close: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("an abort after close: %v", err)
	}
	if f := <-files; f.start.GetMode() != 0o2640 || !f.start.GetExclusive() || f.start.GetModTime().GetSeconds() != 5 {
		t.Errorf("%v", f.start)
	}

	w, err = ws.Create(ctx, "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a close after abort: %v", err)
	}
	if f := <-files; f.ended {
		t.Error("an aborted write was ended")
	}

	canceled, cancel := context.WithCancel(ctx)
	w, err = ws.Create(canceled, "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("a close after its context: %v", err)
	}
	if f := <-files; f.ended {
		t.Error("a cancelled write was ended")
	}

	var plug *workspace.PluginError
	if err := ws.WriteFile(ctx, "f", []byte("short")); !errors.As(err, &plug) || !strings.Contains(plug.Reason, "incomplete") {
		t.Error(err)
	}
	<-files
	err = ws.WriteFile(ctx, "/full", []byte(long))
	var pathErr *fs.PathError
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pathErr) || pathErr.Path != "/full" {
		t.Error(err)
	}
	<-files
}
