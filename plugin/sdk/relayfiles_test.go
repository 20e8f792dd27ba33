package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestRelayedFiles(t *testing.T) {
	guest := &optional{memory: newMemory()}
	guest.bare = newInside()
	ws := guardedBy(t, guest)
	client := serveProvider(t, providing(ws))
	ctx := t.Context()
	data := slices.Repeat([]byte("0123456789"), 100_000)
	if written, err := uploadFile(t, client, "a/\xff b", data); err != nil || written != int64(len(data)) {
		t.Fatalf("wrote %d bytes, %v", written, err)
	}
	if got := string(guest.files["/inside/a/\xff b"].data); got != string(data) {
		t.Errorf("%d bytes arrived", len(got))
	}
	for _, test := range []struct{ offset, length int64 }{{0, 0}, {999_999, 0}, {10, 20}, {1_000_000, 0}} {
		got, err := downloadFile(t, client, &berthv1.ReadFileRequest{Path: []byte("a/\xff b"), Offset: test.offset, Length: test.length})
		want := data[test.offset:]
		if test.length > 0 {
			want = want[:test.length]
		}
		if err != nil || string(got) != string(want) {
			t.Errorf("%+v: %d bytes, %v", test, len(got), err)
		}
	}
	stat, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a/\xff b")})
	if err != nil || stat.GetInfo().GetSize() != int64(len(data)) || string(stat.GetInfo().GetName()) != "\xff b" {
		t.Errorf("stat %v, %v", stat, err)
	}
	for i := range 3000 {
		guest.files[fmt.Sprintf("/inside/d/%s%d", strings.Repeat("n", 200), i)] = &memoryFile{}
	}
	entries, err := listDir(t, client, "d")
	if err != nil || len(entries) != 3000 || !slices.IsSorted(entries) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	resolved, err := client.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("x/../y")})
	if err != nil || string(resolved.GetPath()) != "/inside/y" {
		t.Errorf("real path %v, %v", resolved, err)
	}
	// Errors are about the caller's path, and cross with their kinds.
	_, err = client.Lstat(ctx, &berthv1.LstatRequest{Workspace: key("ws"), Path: []byte("no/such")})
	var pathErr *fs.PathError
	if err = fromCall(err); !errors.As(err, &pathErr) || pathErr.Path != "no/such" || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("error %#v", err)
	}
	_, err = client.Remove(ctx, &berthv1.RemoveRequest{Workspace: key("ws"), Path: []byte("../inside")})
	mustBe(t, fromCall(err), workspace.ErrInvalid)
	guest.fail = func(op, _ string) error {
		if op == "create" {
			return syscall.ENOSPC
		}
		return nil
	}
	_, err = uploadFile(t, client, "full", data)
	mustBe(t, err, syscall.ENOSPC)
	ws.checkReleased(t)
}

// optional is a memory with the optional features, which are noted.
type optional struct {
	*memory
	noted []string
}

func (o *optional) Announce() []workspace.Feature { return nil }
func (o *optional) note(call string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noted = append(o.noted, call)
	return nil
}

func (o *optional) Rename(_ context.Context, from, to string) error {
	return o.note("rename " + from + " " + to)
}

func (o *optional) Symlink(_ context.Context, target, file string) error {
	return o.note("symlink " + target + " " + file)
}

func (o *optional) Readlink(_ context.Context, file string) (string, error) {
	return "target of \xff", o.note("readlink " + file)
}

func (o *optional) Chmod(_ context.Context, file string, mode fs.FileMode) error {
	return o.note(fmt.Sprintf("chmod %s %v", file, mode))
}

func (o *optional) Chtimes(_ context.Context, file string, modTime time.Time) error {
	return o.note(fmt.Sprintf("chtimes %s %d", file, modTime.UnixNano()))
}

func TestRelayedOptionalFeatures(t *testing.T) {
	guest := &optional{memory: newMemory()}
	guest.bare = newInside()
	client := serveProvider(t, providing(guardedBy(t, guest)))
	ctx, ws := t.Context(), key("ws")
	for what, err := range map[string]error{
		"rename":  second(client.Rename(ctx, &berthv1.RenameRequest{Workspace: ws, From: []byte("a"), To: []byte("b")})),
		"symlink": second(client.Symlink(ctx, &berthv1.SymlinkRequest{Workspace: ws, Target: []byte("../t"), Path: []byte("l")})),
		"chmod":   second(client.Chmod(ctx, &berthv1.ChmodRequest{Workspace: ws, Path: []byte("m"), Mode: 0o4750})),
		"chtimes": second(client.Chtimes(ctx, &berthv1.ChtimesRequest{Workspace: ws, Path: []byte("t"), ModTime: &berthv1.Time{Seconds: 3, Nanos: 7}})),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	link, err := client.Readlink(ctx, &berthv1.ReadlinkRequest{Workspace: ws, Path: []byte("l")})
	if err != nil || string(link.GetTarget()) != "target of \xff" {
		t.Errorf("link %v, %v", link, err)
	}
	slices.Sort(guest.noted)
	if got := strings.Join(guest.noted, "; "); got != "chmod /inside/m urwxr-x---; chtimes /inside/t 3000000007; readlink /inside/l; rename /inside/a /inside/b; symlink ../t /inside/l" {
		t.Errorf("calls %s", got)
	}
}

func second[T any](_ T, err error) error { return err }

// uploadFile writes a file in chunks.
func uploadFile(t testing.TB, client berthv1.ProviderClient, path string, data []byte) (int64, error) {
	t.Helper()
	stream, err := client.WriteFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *berthv1.WriteFileRequest) {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: key("ws"), Path: []byte(path)}}})
	for chunk := range slices.Chunk(data, wire.ChunkSize) {
		send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: chunk}})
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: int64(len(data))}})
	answer, err := stream.CloseAndRecv()
	return answer.GetWritten(), fromCall(err)
}

// downloadFile reads as a host does, with its checks.
func downloadFile(t testing.TB, client berthv1.ProviderClient, req *berthv1.ReadFileRequest) ([]byte, error) {
	t.Helper()
	req.Workspace = key("ws")
	stream, err := client.ReadFile(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		return nil, fromCall(err)
	}
	if m.GetInfo() == nil {
		t.Errorf("data before the file's description")
	}
	var data []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				t.Error("the file ended before its end")
			}
			return data, fromCall(err)
		}
		switch m := m.GetMessage().(type) {
		case *berthv1.ReadFileResponse_Data:
			data = append(data, m.Data...)
			if req.GetLength() > 0 && int64(len(data)) > req.GetLength() {
				t.Error("more than was asked for")
			}
		case *berthv1.ReadFileResponse_End:
			if m.End != int64(len(data)) {
				t.Errorf("end %d after %d bytes", m.End, len(data))
			}
			return data, nil
		default:
			t.Errorf("message %v", m)
		}
	}
}

// listDir lists as a host does, with its checks.
func listDir(t testing.TB, client berthv1.ProviderClient, path string) (names []string, err error) {
	t.Helper()
	stream, err := client.ReadDir(t.Context(), &berthv1.ReadDirRequest{Workspace: key("ws"), Path: []byte(path)})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				t.Error("the listing ended before its end")
			}
			return names, fromCall(err)
		}
		for _, entry := range m.GetEntries() {
			name := string(entry.GetName())
			if badName(name) || len(names) > 0 && names[len(names)-1] >= name {
				t.Errorf("entry %q", name)
			}
			names = append(names, name)
		}
		if m.GetEnd() {
			return names, nil
		}
	}
}
