package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
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

func TestF4_AListingIsCompleteAndSortedOrAnError(t *testing.T) {
	entries := func(end bool, names ...string) *berthv1.ReadDirResponse {
		resp := &berthv1.ReadDirResponse{End: end}
		for _, name := range names {
			resp.Entries = append(resp.Entries, &berthv1.FileInfo{Name: []byte(name), Mode: 0o100644})
		}
		return resp
	}
	list := func(responses ...*berthv1.ReadDirResponse) *raw {
		return &raw{readDir: func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
			for _, r := range responses {
				if err := stream.Send(r); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	got, err := newWorkspace(t, list(entries(false, "a\nb", "a\xff"), entries(true, "b"))).ReadDir(t.Context(), ".")
	if err != nil || len(got) != 3 || got[1].Name != "a\xff" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, responses := range map[string][]*berthv1.ReadDirResponse{
		"no end":          {entries(false, "a")},
		"unsorted":        {entries(false, "b"), entries(true, "a")},
		"twice":           {entries(true, "a", "a")},
		"a way out":       {entries(true, "..")},
		"a path":          {entries(true, "a/b")},
		"an empty name":   {entries(true, "")},
		"a name with NUL": {entries(true, "a\x00")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newWorkspace(t, list(responses...)).ReadDir(t.Context(), ".")
			var plug *workspace.PluginError
			if !errors.As(err, &plug) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestF4_AListingOf100000Names(t *testing.T) {
	const total = 100_000
	ws := newWorkspace(t, &raw{readDir: func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
		var entries []*berthv1.FileInfo
		for i := range total {
			entries = append(entries, &berthv1.FileInfo{Name: fmt.Appendf(nil, "%06d-%s", i, strings.Repeat("n", 200)), Mode: 0o100644})
			if len(entries) == 300 {
				if err := stream.Send(&berthv1.ReadDirResponse{Entries: entries}); err != nil {
					return err
				}
				entries = nil
			}
		}
		return stream.Send(&berthv1.ReadDirResponse{Entries: entries, End: true})
	}})
	infos, err := ws.ReadDir(t.Context(), ".")
	if err != nil || len(infos) != total {
		t.Errorf("%d entries, %v", len(infos), err)
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

func TestB7_APluginsErrorsAreRedacted(t *testing.T) {
	p := &raw{
		schema: `{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}`,
		stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
			return nil, wire.ToStatus(&fs.PathError{Op: "stat", Path: "x", Err: errors.New("401 for s3cret-key")})
		},
	}
	ws := newWorkspace(t, p, func(c *host.Config) {
		c.Providers["raw"] = host.Provider{InProcess: p, Config: map[string]any{"key": "s3cret-key"}}
	})
	if _, err := ws.Stat(t.Context(), "f"); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	// A plugin without our SDK sends no detail.
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		p.stat = func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
			return nil, status.Error(code, "401 for s3cret-key "+strings.Repeat("x", 60)+" s3cret-key")
		}
		if _, err := ws.Stat(t.Context(), "f"); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: %v", code, err)
		}
	}
}

func TestRealPathMustBeAbsolute(t *testing.T) {
	var plug *workspace.PluginError
	if path, err := newWorkspace(t, &raw{realPath: func() string { return "../x" }}).RealPath(t.Context(), "x"); !errors.As(err, &plug) {
		t.Errorf("%q, %v", path, err)
	}
}

func TestF3_ErrorsCarryTheCallersPath(t *testing.T) {
	var answer error
	p := &raw{stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) { return nil, answer }}
	ws := newWorkspace(t, p)
	for name, test := range map[string]struct {
		err  error
		path bool // in an *fs.PathError
		is   error
	}{
		"a path error":          {wire.ToStatus(&fs.PathError{Op: "lstat", Path: "/abs/x", Err: syscall.ENOTDIR}), true, syscall.ENOTDIR},
		"one that is wrapped":   {wire.ToStatus(fmt.Errorf("looking: %w", &fs.PathError{Op: "lstat", Path: "/abs/x", Err: fs.ErrNotExist})), true, fs.ErrNotExist},
		"a bare errno":          {wire.ToStatus(syscall.ELOOP), true, syscall.ELOOP},
		"a link error":          {wire.ToStatus(&os.LinkError{Op: "x", Old: "a", New: "b", Err: syscall.EXDEV}), true, syscall.EXDEV},
		"a foreign not found":   {status.Error(codes.NotFound, "no such thing"), true, fs.ErrNotExist},
		"a foreign invalid":     {status.Error(codes.InvalidArgument, "no"), false, workspace.ErrInvalid},
		"a foreign abort":       {status.Error(codes.Aborted, "429"), false, workspace.ErrTransient},
		"a foreign exhaustion":  {status.Error(codes.ResourceExhausted, "quota"), false, workspace.ErrTransient},
		"a foreign gone":        {status.Error(codes.FailedPrecondition, "gone"), false, workspace.ErrUnavailable},
		"a foreign unsupported": {status.Error(codes.Unimplemented, ""), false, errors.ErrUnsupported},
		"unavailable":           {wire.ToStatus(fmt.Errorf("gone: %w", workspace.ErrUnavailable)), false, workspace.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			answer = test.err
			before := p.calls.Load()
			_, err := ws.Stat(t.Context(), "my/path")
			var pathErr *fs.PathError
			if !errors.Is(err, test.is) || errors.As(err, &pathErr) != test.path {
				t.Fatalf("%T %v", err, err)
			}
			if test.path && (pathErr.Path != "my/path" || pathErr.Op != "stat") {
				t.Errorf("%v", err)
			}
			var plug *workspace.PluginError
			if errors.As(err, &plug) {
				t.Errorf("an answer was taken for a death: %v", err)
			}
			if n := p.calls.Load() - before; name != "a path error" && n > 2 {
				t.Errorf("%d calls", n)
			}
		})
	}
	answer = status.Error(codes.Unknown, "plain "+strings.Repeat("z", 1000))
	if _, err := ws.Stat(t.Context(), "f"); err == nil || !strings.Contains(err.Error(), "plain z") || len(err.Error()) > 300 {
		t.Error(err)
	}
}

func TestMessagesOverTheCapAreTypedErrors(t *testing.T) {
	big := strings.Repeat("x", wire.MaxMessage)
	ws := newWorkspace(t, &raw{stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
		return &berthv1.StatResponse{Info: &berthv1.FileInfo{Target: []byte(strings.Repeat(big, 4))}}, nil
	}})
	_, err := ws.Stat(t.Context(), "f")
	if err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("an answer of 64 MiB: %.200v", err)
	}
	_, err = ws.Stat(t.Context(), big)
	if !errors.Is(err, syscall.E2BIG) || !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("a path of 16 MiB: %.200v", err)
	}
	if _, err := ws.Lstat(t.Context(), "f"); errors.Is(err, context.Canceled) {
		t.Errorf("the connection is gone: %v", err)
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ro := host.ReadOnly(ws)
	for name, call := range map[string]func() error{
		"run":       func() error { _, err := ro.Run(ctx, workspace.Command{Script: "true"}); return err },
		"start":     func() error { _, err := ro.Start(ctx, workspace.Command{Script: "true"}); return err },
		"create":    func() error { _, err := ro.Create(ctx, "f", workspace.WriteOptions{}); return err },
		"write":     func() error { return ro.WriteFile(ctx, "f", nil) },
		"mkdir":     func() error { return ro.MkdirAll(ctx, "d") },
		"remove":    func() error { return ro.Remove(ctx, "f") },
		"removeall": func() error { return ro.RemoveAll(ctx, "f") },
		"rename":    func() error { return ro.Rename(ctx, "f", "g") },
		"symlink":   func() error { return ro.Symlink(ctx, "f", "g") },
		"chmod":     func() error { return ro.Chmod(ctx, "f", 0) },
		"chtimes":   func() error { return ro.Chtimes(ctx, "f", time.Now()) },
	} {
		if err := call(); !errors.Is(err, workspace.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if data, err := ro.ReadFile(ctx, "f"); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	features, err := ro.Features(ctx)
	if err != nil || features.Has(workspace.FeatureRename) || !features.Has(workspace.FeatureFiles) {
		t.Errorf("%v, %v", features, err)
	}
}
