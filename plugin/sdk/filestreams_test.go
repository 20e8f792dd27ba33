package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

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
