package sdk

import (
	"bytes"
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

	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// full is memory with the optional operations.
type full struct{ *memory }

func (f full) note(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, op+" "+path)
	if f.fail != nil {
		return f.fail(op, path)
	}
	return nil
}

func (f full) Rename(_ context.Context, from, to string) error { return f.note("rename", from+" "+to) }
func (f full) Symlink(_ context.Context, target, path string) error {
	return f.note("symlink", target+" "+path)
}
func (f full) Readlink(_ context.Context, path string) (string, error) {
	return "target of " + path, f.note("readlink", path)
}
func (f full) Chmod(_ context.Context, path string, mode fs.FileMode) error {
	return f.note("chmod", fmt.Sprint(path, " ", mode))
}
func (f full) Chtimes(_ context.Context, path string, modTime time.Time) error {
	return f.note("chtimes", fmt.Sprint(path, " ", modTime.UnixNano()))
}
func (f full) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureExclusive, workspace.FeatureAppend}
}

// fileCalls calls every operation on a path.
var fileCalls = map[string]func(ctx context.Context, client berthv1.ProviderClient, path string) error{
	opStat: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opLstat: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Lstat(ctx, &berthv1.LstatRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opReadDir: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := readDir(ctx, client, path)
		return err
	},
	opOpen: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, _, err := readFile(ctx, client, &berthv1.ReadFileRequest{Path: []byte(path)})
		return err
	},
	opCreate: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		return writeFile(ctx, client, &berthv1.WriteFileStart{Path: []byte(path)}, "x")
	},
	opMkdir: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.MkdirAll(ctx, &berthv1.MkdirAllRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opRemove: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Remove(ctx, &berthv1.RemoveRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opReadlink: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Readlink(ctx, &berthv1.ReadlinkRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opChmod: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Chmod(ctx, &berthv1.ChmodRequest{Workspace: key("ws"), Path: []byte(path), Mode: 0o4755})
		return err
	},
	opChtimes: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Chtimes(ctx, &berthv1.ChtimesRequest{Workspace: key("ws"), Path: []byte(path), ModTime: &berthv1.Time{Seconds: 5, Nanos: 6}})
		return err
	},
	opRealPath: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte(path)})
		return err
	},
	opRename: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Rename(ctx, &berthv1.RenameRequest{Workspace: key("ws"), From: []byte(path), To: []byte("to")})
		return err
	},
	opSymlink: func(ctx context.Context, client berthv1.ProviderClient, path string) error {
		_, err := client.Symlink(ctx, &berthv1.SymlinkRequest{Workspace: key("ws"), Target: []byte("target"), Path: []byte(path)})
		return err
	},
}

func readFile(ctx context.Context, client berthv1.ProviderClient, req *berthv1.ReadFileRequest) (info *berthv1.FileInfo, data []byte, err error) {
	req.Workspace = key("ws")
	stream, err := client.ReadFile(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	ended := false
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && ended {
			return info, data, nil
		}
		if err != nil {
			return info, data, err
		}
		switch m := m.GetMessage().(type) {
		case *berthv1.ReadFileResponse_Info:
			info = m.Info
		case *berthv1.ReadFileResponse_Data:
			if info == nil || ended || len(m.Data) > wire.ChunkSize {
				return info, data, fmt.Errorf("data of %d bytes out of order", len(m.Data))
			}
			data = append(data, m.Data...)
		case *berthv1.ReadFileResponse_End:
			if ended = true; m.End != int64(len(data)) {
				return info, data, fmt.Errorf("end says %d, %d bytes came", m.End, len(data))
			}
		}
	}
}

func writeFile(ctx context.Context, client berthv1.ProviderClient, start *berthv1.WriteFileStart, chunks ...string) error {
	start.Workspace = key("ws")
	stream, err := client.WriteFile(ctx)
	if err != nil {
		return err
	}
	send := func(m *berthv1.WriteFileRequest) { _ = stream.Send(m) } // CloseAndRecv tells why not
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: start}})
	var n int64
	for _, chunk := range chunks {
		send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: []byte(chunk)}})
		n += int64(len(chunk))
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: n}})
	answer, err := stream.CloseAndRecv()
	if err == nil && answer.GetWritten() != n {
		return fmt.Errorf("written %d of %d", answer.GetWritten(), n)
	}
	return err
}

func readDir(ctx context.Context, client berthv1.ProviderClient, path string) (infos []workspace.FileInfo, err error) {
	stream, err := client.ReadDir(ctx, &berthv1.ReadDirRequest{Workspace: key("ws"), Path: []byte(path)})
	if err != nil {
		return nil, err
	}
	ended := false
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && ended {
			return infos, nil
		}
		if err != nil {
			return infos, err
		}
		if size := proto.Size(m); ended || size > 2*wire.ChunkSize {
			return infos, fmt.Errorf("a message of %d bytes, after the end: %v", size, ended)
		}
		for _, info := range m.GetEntries() {
			infos = append(infos, wire.ToFileInfo(info))
		}
		ended = m.GetEnd()
	}
}

func TestF3_ErrorsHaveTheCallersPath(t *testing.T) {
	const path = "sub/../a\xff\n"
	own := &fs.PathError{Op: "openat", Path: "/somewhere/else", Err: syscall.ENOTDIR}
	for name, failure := range map[string]error{
		"path error": own,
		"link error": &os.LinkError{Op: "x", Old: "a", New: "b", Err: syscall.ENOTDIR},
		"nested":     &fs.PathError{Op: "a", Path: "b", Err: own},
		"wrapped":    fmt.Errorf("by the engine: %w", own),
		"bare":       syscall.ENOTDIR,
	} {
		ws := full{newMemory()}
		ws.fail = func(op, path string) error {
			if op == "lstat" && path == "/" { // where Remove looks first
				return nil
			}
			return failure
		}
		client := serveProvider(t, providing(ws))
		for op, call := range fileCalls {
			err := fromCall(call(t.Context(), client, path))
			if op == opRealPath { // a missing name is none of its errors
				if err != nil {
					t.Errorf("%s: %s: %v", name, op, err)
				}
				continue
			}
			if !errors.Is(err, syscall.ENOTDIR) {
				t.Errorf("%s: %s: error %v", name, op, err)
			}
			var pathErr *fs.PathError
			var linkErr *os.LinkError
			switch op {
			case opRename:
				if !errors.As(err, &linkErr) || linkErr.Op != op || linkErr.Old != path || linkErr.New != "to" {
					t.Errorf("%s: %s: error %#v", name, op, err)
				}
			case opSymlink:
				if !errors.As(err, &linkErr) || linkErr.Op != op || linkErr.Old != "target" || linkErr.New != path {
					t.Errorf("%s: %s: error %#v", name, op, err)
				}
			default:
				if !errors.As(err, &pathErr) || pathErr.Op != op || pathErr.Path != path {
					t.Errorf("%s: %s: error %#v", name, op, err)
				}
			}
		}
	}
}

func TestF1_PathsArriveAsTheyWereGiven(t *testing.T) {
	for path, want := range map[string]string{
		"a":           "/work/a",
		"/a":          "/a",
		"../a/./b//c": "/work/../a/./b//c",
		"-rf":         "/work/-rf",
		" ":           "/work/ ",
		"\n\xff'\"$":  "/work/\n\xff'\"$",
		"//x":         "//x",
	} {
		ws := full{newMemory()}
		client := serveProvider(t, providing(ws))
		if err := fileCalls[opMkdir](t.Context(), client, path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
		if got := ws.called("mkdir"); len(got) != 1 || got[0] != want {
			t.Errorf("%q arrives as %q", path, got)
		}
	}
	ws := full{newMemory()}
	ws.dir = "/"
	if err := fileCalls[opMkdir](t.Context(), serveProvider(t, providing(ws)), "a"); err != nil || ws.called("mkdir")[0] != "/a" {
		t.Errorf("in /: %q, error %v", ws.called("mkdir"), err)
	}
}

func TestC1_PathsThatNoFileHas(t *testing.T) {
	ws := full{newMemory()}
	client := serveProvider(t, providing(ws))
	for op, call := range fileCalls {
		for _, path := range []string{"", "a\x00b"} {
			err := fromCall(call(t.Context(), client, path))
			var pathErr *fs.PathError
			if !errors.Is(err, workspace.ErrInvalid) || !errors.As(err, &pathErr) || pathErr.Op != op || pathErr.Path != path {
				t.Errorf("%s %q: error %#v", op, path, err)
			}
		}
	}
	for _, req := range []*berthv1.RenameRequest{{From: []byte("a"), To: []byte("")}, {From: []byte("a"), To: []byte("\x00")}} {
		_, err := client.Rename(t.Context(), req)
		mustBe(t, fromCall(err), workspace.ErrInvalid)
	}
	_, err := client.Symlink(t.Context(), &berthv1.SymlinkRequest{Target: []byte("\x00"), Path: []byte("a")})
	mustBe(t, fromCall(err), workspace.ErrInvalid)
	if len(ws.calls) > 0 {
		t.Errorf("the provider was called: %q", ws.calls)
	}
}

func TestF10_MissingFeaturesAreUnsupported(t *testing.T) {
	client := serveProvider(t, providing(newMemory()))
	for _, op := range []string{opRename, opSymlink, opReadlink, opChmod, opChtimes} {
		if err := fromCall(fileCalls[op](t.Context(), client, "a")); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: error %v", op, err)
		}
	}
	for name, start := range map[string]*berthv1.WriteFileStart{
		"exclusive": {Exclusive: true}, "append": {Append: true}, "time": {ModTime: &berthv1.Time{Seconds: 1}},
	} {
		start.Path = []byte("a")
		if err := fromCall(writeFile(t.Context(), client, start, "x")); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	none := serveProvider(t, providing(starting(newFakeProcess())))
	for op, call := range fileCalls {
		if err := fromCall(call(t.Context(), none, "a")); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without files, %s: error %v", op, err)
		}
	}
}

func TestOptionalOperationsArrive(t *testing.T) {
	ws := full{newMemory()}
	client := serveProvider(t, providing(ws))
	for _, op := range []string{opRename, opSymlink, opReadlink, opChmod, opChtimes} {
		if err := fileCalls[op](t.Context(), client, "a"); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	want := `["rename /work/a /work/to" "symlink target /work/a" "readlink /work/a" "chmod /work/a urwxr-xr-x" "chtimes /work/a 5000000006"]`
	if got := fmt.Sprintf("%q", ws.calls); got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	answer, err := client.Readlink(t.Context(), &berthv1.ReadlinkRequest{Workspace: key("ws"), Path: []byte("a")})
	if err != nil || string(answer.GetTarget()) != "target of /work/a" {
		t.Errorf("readlink: %v, %v", answer, err)
	}
	start := &berthv1.WriteFileStart{Path: []byte("b"), Exclusive: true, Append: true, ModTime: &berthv1.Time{Seconds: 1}, Mode: proto.Uint32(0o600)}
	if err := writeFile(t.Context(), client, start, "x"); err != nil || ws.files["/work/b"].mode != 0o600 {
		t.Errorf("write: %v, %+v", err, ws.files["/work/b"])
	}
}

func TestF8_FilesStream(t *testing.T) {
	ws := newMemory()
	client := serveProvider(t, providing(ws))
	data := make([]byte, 3*wire.ChunkSize+17)
	_, _ = pattern{}.Read(data)
	var chunks []string
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 100_000)
		chunks, rest = append(chunks, string(rest[:n])), rest[n:]
	}
	if err := writeFile(t.Context(), client, &berthv1.WriteFileStart{Path: []byte("f")}, chunks...); err != nil {
		t.Fatal(err)
	}
	if f := ws.files["/work/f"]; !bytes.Equal(f.data, data) || f.mode != workspace.DefaultFileMode {
		t.Fatalf("%d bytes of mode %v were written", len(f.data), f.mode)
	}
	size := int64(len(data))
	for _, test := range []struct{ offset, length, from, to int64 }{
		{0, 0, 0, size}, {5, 0, 5, size}, {5, 10, 5, 15}, {0, wire.ChunkSize, 0, wire.ChunkSize},
		{size - 1, 100, size - 1, size}, {size, 0, size, size}, {size + 100, 5, size, size},
	} {
		info, got, err := readFile(t.Context(), client, &berthv1.ReadFileRequest{Path: []byte("f"), Offset: test.offset, Length: test.length})
		if err != nil || !bytes.Equal(got, data[test.from:test.to]) || info.GetSize() != size || string(info.GetName()) != "f" {
			t.Errorf("%+v: %d bytes, info %v, error %v", test, len(got), info, err)
		}
	}
	for _, req := range []*berthv1.ReadFileRequest{{Offset: -1}, {Length: -1}} {
		req.Path = []byte("f")
		_, _, err := readFile(t.Context(), client, req)
		mustBe(t, fromCall(err), workspace.ErrInvalid)
	}
}

// opening gives a reader of the test's.
type opening struct {
	*memory
	reader workspace.FileReader
	writer workspace.FileWriter
}

func (o opening) Open(context.Context, string, workspace.ReadOptions) (workspace.FileReader, error) {
	return o.reader, nil
}

func (o opening) Create(context.Context, string, workspace.WriteOptions) (workspace.FileWriter, error) {
	return o.writer, nil
}

func TestReaderThatMisbehaves(t *testing.T) {
	for name, test := range map[string]struct {
		read   readerFunc
		length int64
		want   string // received; with an error if none of the whole
		fails  bool
	}{
		"too many bytes":    {read: func(p []byte) (int, error) { return len(p) + 1, nil }, fails: true},
		"negative":          {read: func([]byte) (int, error) { return -1, nil }, fails: true},
		"nothing, for ever": {read: func([]byte) (int, error) { return 0, nil }, fails: true},
		"panic":             {read: func([]byte) (int, error) { panic("boom") }, fails: true},
		"breaks off":        {read: func(p []byte) (int, error) { return copy(p, "abc"), io.ErrUnexpectedEOF }, want: "abc", fails: true},
		"beyond the length": {read: func(p []byte) (int, error) { return copy(p, "abcdefgh"), nil }, length: 3, want: "abc"},
		"bytes with EOF":    {read: func(p []byte) (int, error) { return copy(p, "abc"), io.EOF }, want: "abc"},
	} {
		closed := false
		ws := opening{memory: newMemory(), reader: &memoryReader{Reader: test.read, closed: &closed, info: workspace.FileInfo{Size: 1 << 40}}}
		client := connect(t, quiet(pluginOf(providing(ws))))
		if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		_, data, err := readFile(t.Context(), client, &berthv1.ReadFileRequest{Path: []byte("f"), Length: test.length})
		if string(data) != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %q, error %v", name, data, err)
		}
		if !closed {
			t.Errorf("%s: the reader is open", name)
		}
	}
	for name, ws := range map[string]opening{"nothing": {}, "typed nil": {reader: (*memoryReader)(nil), writer: (*memoryWriter)(nil)}} {
		ws.memory = newMemory()
		client := serveProvider(t, providing(ws))
		if _, _, err := readFile(t.Context(), client, &berthv1.ReadFileRequest{Path: []byte("f")}); err == nil {
			t.Errorf("%s: no error of read", name)
		}
		if err := writeFile(t.Context(), client, &berthv1.WriteFileStart{Path: []byte("f")}); err == nil {
			t.Errorf("%s: no error of write", name)
		}
	}
}

func TestF2_UploadWithoutItsEndIsAborted(t *testing.T) {
	start := &berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: key("ws"), Path: []byte("f")}}}
	data := &berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: []byte("abc")}}
	end := func(n int64) *berthv1.WriteFileRequest {
		return &berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: n}}
	}
	for name, test := range map[string]struct {
		messages []*berthv1.WriteFileRequest
		cancel   bool
		want     error
		early    bool // nothing was begun
	}{
		"breaks off":   {messages: []*berthv1.WriteFileRequest{start, data}, want: io.ErrUnexpectedEOF},
		"cancelled":    {messages: []*berthv1.WriteFileRequest{start, data}, cancel: true},
		"wrong count":  {messages: []*berthv1.WriteFileRequest{start, data, end(4)}, want: workspace.ErrInvalid},
		"second start": {messages: []*berthv1.WriteFileRequest{start, data, start}, want: workspace.ErrInvalid},
		"no start":     {messages: []*berthv1.WriteFileRequest{data}, want: workspace.ErrInvalid, early: true},
		"nothing":      {early: true},
	} {
		ws := newMemory()
		client := serveProvider(t, providing(ws))
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.WriteFile(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range test.messages {
			_ = stream.Send(m)
		}
		if test.cancel {
			eventually(t, "the write begins", func() bool { return len(ws.called("create")) == 1 })
			cancel()
		}
		_, err = stream.CloseAndRecv()
		if err == nil || test.want != nil && !errors.Is(fromCall(err), test.want) && !strings.Contains(fromCall(err).Error(), test.want.Error()) {
			t.Errorf("%s: error %v", name, fromCall(err))
		}
		if !test.early {
			eventually(t, name+": the write is aborted", func() bool { return len(ws.called("abort")) == 1 })
		}
		if ws.files["/work/f"] != nil || test.early && len(ws.calls) > 0 {
			t.Errorf("%s: files %v, calls %v", name, ws.files, ws.calls)
		}
		cancel()
	}
}

// failingWriter fails where the test says.
type failingWriter struct {
	memoryWriter
	write func([]byte) (int, error)
	close error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.write != nil {
		return w.write(p)
	}
	return w.memoryWriter.Write(p)
}

func (w *failingWriter) Close() error {
	if w.close != nil {
		return w.close
	}
	return w.memoryWriter.Close()
}

func TestWriterThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		writer failingWriter
		want   string
	}{
		"full":  {failingWriter{write: func([]byte) (int, error) { return 0, syscall.ENOSPC }}, syscall.ENOSPC.Error()},
		"short": {failingWriter{write: func(p []byte) (int, error) { return len(p) - 1, nil }}, io.ErrShortWrite.Error()},
		"close": {failingWriter{close: syscall.EDQUOT}, syscall.EDQUOT.Error()},
		"panic": {failingWriter{write: func([]byte) (int, error) { panic("boom") }}, "panic in WriteFile"},
	} {
		ws := newMemory()
		test.writer.memoryWriter = memoryWriter{m: ws, path: "/work/f"}
		client := connect(t, quiet(pluginOf(providing(opening{memory: ws, writer: &test.writer}))))
		if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		err := fromCall(writeFile(t.Context(), client, &berthv1.WriteFileStart{Path: []byte("f")}, "abc"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v", name, err)
		}
		if len(ws.called("abort")) != 1 || len(ws.files) > 0 {
			t.Errorf("%s: calls %v, files %v", name, ws.calls, ws.files)
		}
	}
}

func TestF4_ListingIsSortedAndWhole(t *testing.T) {
	ws := newMemory()
	const names = 100_000
	for i := range names {
		ws.files[fmt.Sprintf("/work/d/%d-\xff", i)] = &memoryFile{mode: fs.ModeSymlink | 0o777, target: strings.Repeat("t", 50)}
	}
	ws.files["/work/big/a"] = &memoryFile{target: strings.Repeat("x", 100<<10)}
	ws.files["/work/big/b"] = &memoryFile{target: strings.Repeat("y", 100<<10)}
	client := serveProvider(t, providing(ws))
	infos, err := readDir(t.Context(), client, "d")
	if err != nil || len(infos) != names {
		t.Fatalf("%d entries, error %v", len(infos), err)
	}
	for i := range infos {
		if i > 0 && infos[i-1].Name >= infos[i].Name {
			t.Fatalf("%q before %q", infos[i-1].Name, infos[i].Name)
		}
	}
	if info := infos[0]; info.Name != "0-\xff" || !info.Link || len(info.Target) != 50 || info.Mode != fs.ModeSymlink|0o777 {
		t.Errorf("first %+v", info)
	}
	if infos, err := readDir(t.Context(), client, "big"); err != nil || len(infos) != 2 {
		t.Errorf("%d entries with long targets, error %v", len(infos), err)
	}
	if infos, err := readDir(t.Context(), client, "empty"); err != nil || len(infos) != 0 {
		t.Errorf("%d entries, error %v", len(infos), err)
	}
}

func linked() *memory {
	m := newMemory()
	for path, target := range map[string]string{
		"/work": "", "/work/d": "", "/link": "work", "/abs": "/work/d", "/work/up": "..", "/work/self": "self",
		"/work/a": "b", "/work/b": "a", "/work/d/here": ".", "/work/dangling": "no/such", "/work/deep": "/abs/../d/here/x",
	} {
		mode := fs.ModeDir | 0o755
		if target != "" {
			mode = fs.ModeSymlink | 0o777
		}
		m.files[path] = &memoryFile{mode: mode, target: target}
	}
	for i := range maxLinks + 1 { // c0 -> c1 -> …
		m.files[fmt.Sprintf("/work/c%d", i)] = &memoryFile{target: fmt.Sprintf("c%d", i+1)}
	}
	return m
}

func TestF7_RealPathIsDerived(t *testing.T) {
	client := serveProvider(t, providing(linked()))
	for path, want := range map[string]string{
		".": "/work", "..": "/", "../../..": "/", "/": "/", "//": "/", "x": "/work/x", "x/y/../z": "/work/x/z",
		"/link/x": "/work/x", "/abs": "/work/d", "/abs/..": "/work", "up/link": "/work", "up": "/", "d/here/here": "/work/d",
		"dangling": "/work/no/such", "deep": "/work/d/x", "c1": fmt.Sprintf("/work/c%d", maxLinks+1), "\xff\n": "/work/\xff\n",
		"x/..": "/work", "/abs/../up/work/d/": "/work/d",
	} {
		answer, err := client.RealPath(t.Context(), &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte(path)})
		if err != nil || string(answer.GetPath()) != want {
			t.Errorf("%q is %q, error %v, want %q", path, answer.GetPath(), err, want)
		}
	}
	for _, path := range []string{"self", "a", "b/x", "c0"} {
		err := fromCall(fileCalls[opRealPath](t.Context(), client, path))
		var pathErr *fs.PathError
		if !errors.Is(err, syscall.ELOOP) || !errors.As(err, &pathErr) || pathErr.Path != path {
			t.Errorf("%q: error %v", path, err)
		}
	}
	ws := linked()
	ws.fail = func(string, string) error { return workspace.ErrTransient }
	mustBe(t, fromCall(fileCalls[opRealPath](t.Context(), serveProvider(t, providing(ws)), "d")), workspace.ErrTransient)
}

// resolving has a RealPath of its own.
type resolving struct {
	*memory
	asked []string
}

func (r *resolving) RealPath(_ context.Context, path string) (string, error) {
	r.asked = append(r.asked, path)
	return "/its/own", nil
}

func TestF7_RealPathOfTheProviderIsPreferred(t *testing.T) {
	ws := &resolving{memory: newMemory()}
	client := serveProvider(t, providing(ws))
	answer, err := client.RealPath(t.Context(), &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("x")})
	if err != nil || string(answer.GetPath()) != "/its/own" || fmt.Sprint(ws.asked) != "[/work/x]" {
		t.Errorf("%q, asked %q, error %v", answer.GetPath(), ws.asked, err)
	}
}

func TestF6_WorkingDirectoryIsNotRemoved(t *testing.T) {
	ws := linked()
	client := serveProvider(t, providing(ws))
	remove := func(path string) error { return fromCall(fileCalls[opRemove](t.Context(), client, path)) }
	for _, path := range []string{
		".", "./", "..", "/", "//", "/work", "/work/", "/work/.", "../work", "d/..", "d/../", "/link/", "/link/.", "/link/../work",
		"/link/up/", "x/..", "/abs/..", "d/here/..", "deep/../..", "up",
	} {
		err := remove(path)
		if path == "up" { // the link itself
			if err != nil {
				t.Errorf("%q: %v", path, err)
			}
			continue
		}
		var pathErr *fs.PathError
		if !errors.Is(err, workspace.ErrInvalid) || !errors.As(err, &pathErr) || pathErr.Path != path {
			t.Errorf("%q: error %v", path, err)
		}
	}
	for _, path := range []string{"/link", "d/here", "self", "dangling", "/abs", "d"} {
		if err := remove(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	mustBe(t, remove("missing"), fs.ErrNotExist)
	if got := fmt.Sprintf("%q", ws.called("remove")); got != `["/work/up" "/link" "/work/d/here" "/work/self" "/work/dangling" "/abs" "/work/d" "/work/missing"]` {
		t.Errorf("removed %s", got)
	}
}

func TestPanicOfAnyFileCallIsAnError(t *testing.T) {
	ws := full{newMemory()}
	ws.fail = func(op, _ string) error { panic("in " + op) }
	client := connect(t, quiet(pluginOf(providing(ws))))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	for op, call := range fileCalls {
		if err := fromCall(call(t.Context(), client, "a")); err == nil || !strings.Contains(err.Error(), "plugin fake: panic in") {
			t.Errorf("%s: error %v", op, err)
		}
	}
}

func BenchmarkStat(b *testing.B) {
	ws := newMemory()
	ws.files["/work/a"] = &memoryFile{mode: 0o644}
	client := serveProvider(b, providing(ws))
	req := &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")}
	b.ReportAllocs()
	for b.Loop() {
		ws.calls = ws.calls[:0]
		if _, err := client.Stat(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
