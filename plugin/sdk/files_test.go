package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
