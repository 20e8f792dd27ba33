package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// allFeatures are those of a workspace whose guest has everything.
var allFeatures = []workspace.Feature{
	workspace.FeatureCommands, workspace.FeatureShell, workspace.FeatureFiles, workspace.FeatureRename, workspace.FeatureSymlink,
	workspace.FeatureChmod, workspace.FeatureChtimes, workspace.FeatureExclusive, workspace.FeatureAppend, workspace.FeatureAttachRun,
}

// guarded is a workspace with a guest.
type guarded struct {
	*bare
	client   berthv1.ProviderClient
	features []workspace.Feature
	connect  func(ctx context.Context) error    // nil: it is connected
	explain  func(context.Context, error) error // nil: what the SDK says itself
	watch    func(ctx context.Context) error    // nil: it stays
	held     atomic.Int64                       // connections in use
	wrap     func(conn *relay.Conn) *relay.Conn // nil: as it is
}

func (w *guarded) Announce() []workspace.Feature { return w.features }

func (w *guarded) BerthRelay(ctx context.Context) (*relay.Conn, error) {
	if w.connect != nil {
		if err := w.connect(ctx); err != nil {
			return nil, err
		}
	}
	w.held.Add(1)
	conn := &relay.Conn{
		Client: w.client, Key: &berthv1.WorkspaceKey{Id: "inside", Incarnation: []byte("boot-1")},
		Explain: w.explain, Release: func() { w.held.Add(-1) },
	}
	if w.wrap != nil {
		return w.wrap(conn), nil
	}
	return conn, nil
}

func (w *guarded) Watch(ctx context.Context) error {
	if w.watch != nil {
		return w.watch(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// inside is a provider of the one workspace that a guest has.
func inside(ws Workspace) *fakeProvider {
	p := providing(ws)
	p.attach = func(_ context.Context, id string) (Workspace, error) {
		if id != "inside" {
			return nil, fmt.Errorf("workspace %s: %w", id, workspace.ErrUnavailable)
		}
		return ws, nil
	}
	return p
}

func newInside() *bare { return &bare{id: "inside", incarnation: "boot-1", dir: "/inside"} }

// guardedBy is a workspace whose guest is an SDK's server over ws.
func guardedBy(t testing.TB, ws Workspace) *guarded {
	t.Helper()
	return &guarded{bare: newBare(), client: serveProvider(t, inside(ws)), features: allFeatures}
}

// checkReleased is for the end of a test.
func (w *guarded) checkReleased(t testing.TB) {
	t.Helper()
	eventually(t, "every connection is released", func() bool { return w.held.Load() == 0 })
}

func TestRelayedRun(t *testing.T) {
	process := newFakeProcess()
	var seen Command
	guest := starting(process, &seen)
	guest.bare = newInside()
	ws := guardedBy(t, guest)
	client := serveConfigured(t, providing(ws), `{"env":{"A":"configured","B":"configured"}}`)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{
		RunId: "the-run", Script: []byte("exit 7"), Dir: []byte("a/../b"), Stdin: true,
		Env: []*berthv1.EnvVar{{Name: []byte("B"), Value: []byte("call")}, {Name: []byte("\xff"), Value: []byte("\xfe")}},
	})
	call.until("started", func() bool { return call.started })
	if got := fmt.Sprint(seen.Args); got != "[/bin/sh -c exit 7]" || seen.Dir != "/inside/a/../b" || seen.RunID != "the-run" || !seen.Stdin {
		t.Errorf("command %+v", seen)
	}
	if len(seen.Env) != 3 || seen.Env["A"] != "configured" || seen.Env["B"] != "call" || seen.Env["\xff"] != "\xfe" {
		t.Errorf("environment %v", seen.Env)
	}
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Data: []byte("input")}}})
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: 5}}})
	input, err := io.ReadAll(process.stdinR)
	if string(input) != "input" || err != nil {
		t.Errorf("input %q, %v", input, err)
	}
	call.until("stdin is taken", func() bool { return call.stdinTaken == 5 })
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: "TERM", Sequence: 9}}})
	call.until("the signal", func() bool { _, ok := call.signals[9]; return ok })
	const size = 3 << 20
	go func() {
		_, _ = process.stderrW.Write([]byte("to \xff stderr"))
		_, _ = process.stdoutW.Write(make([]byte, size))
		process.exit(7, nil)
	}()
	code, err := call.wait()
	if code != 7 || err != nil || len(call.out[stdout]) != size || string(call.out[stderr]) != "to \xff stderr" || call.signals[9] != nil {
		t.Errorf("code %d, error %v, %d bytes, stderr %q, signal %v", code, err, len(call.out[stdout]), call.out[stderr], call.signals[9])
	}
	ws.checkReleased(t)
}

// The features of a workspace with a guest are what it announces, and what the
// relay can carry.
func TestRelayedFeatures(t *testing.T) {
	ws := &guarded{bare: newBare(), features: []workspace.Feature{workspace.FeatureCommands, workspace.FeatureAttachRun, "teleport"}}
	if got := fmt.Sprint(wire.FromFeatures((&server{}).workspaceFeatures(ws))); got != "[attach-run commands]" {
		t.Errorf("features %s", got)
	}
	client := serveProvider(t, providing(ws))
	_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{Script: []byte("true")}).wait()
	mustBe(t, err, errors.ErrUnsupported)
	ws.features = nil
	client = serveProvider(t, providing(ws))
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{}).wait()
	mustBe(t, err, errors.ErrUnsupported)
	_, err = collectRuns(t, client)
	mustBe(t, err, errors.ErrUnsupported)
}

func collectRuns(t testing.TB, client berthv1.ProviderClient) (runs []*berthv1.ListRunsResponse, err error) {
	t.Helper()
	stream, err := client.ListRuns(t.Context(), &berthv1.ListRunsRequest{Workspace: key("ws")})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return runs, fromCall(err)
		}
		runs = append(runs, m)
	}
}

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

// scriptedGuest answers what a test says.
type scriptedGuest struct {
	berthv1.UnimplementedProviderServer
	mu       sync.Mutex
	run      func(stream runStream) error
	stat     func() (*berthv1.StatResponse, error)
	realPath func() (*berthv1.RealPathResponse, error)
	readlink func() (*berthv1.ReadlinkResponse, error)
	read     func(grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error
	write    func(uploadStream) error
	list     func(grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error
	listRuns func(listRunsStream) error
	stopped  []string
}

func (g *scriptedGuest) Run(stream runStream) error       { return g.run(stream) }
func (g *scriptedGuest) AttachRun(stream runStream) error { return g.run(stream) }
func (g *scriptedGuest) Stat(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	return g.stat()
}

func (g *scriptedGuest) RealPath(context.Context, *berthv1.RealPathRequest) (*berthv1.RealPathResponse, error) {
	return g.realPath()
}

func (g *scriptedGuest) Readlink(context.Context, *berthv1.ReadlinkRequest) (*berthv1.ReadlinkResponse, error) {
	return g.readlink()
}

func (g *scriptedGuest) ReadFile(_ *berthv1.ReadFileRequest, stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
	return g.read(stream)
}
func (g *scriptedGuest) WriteFile(stream uploadStream) error { return g.write(stream) }
func (g *scriptedGuest) ReadDir(_ *berthv1.ReadDirRequest, stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
	return g.list(stream)
}

func (g *scriptedGuest) ListRuns(_ *berthv1.ListRunsRequest, stream listRunsStream) error {
	return g.listRuns(stream)
}

func (g *scriptedGuest) StopRun(_ context.Context, req *berthv1.StopRunRequest) (*berthv1.StopRunResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = append(g.stopped, req.GetWorkspace().GetId()+"/"+req.GetRunId())
	return &berthv1.StopRunResponse{}, nil
}

// scripted is a workspace with such a guest, and its host.
func scripted(t testing.TB, guest *scriptedGuest) (*guarded, berthv1.ProviderClient) {
	t.Helper()
	ws := &guarded{bare: newBare(), features: allFeatures}
	ws.client = connectTo(t, func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, guest) })
	return ws, serveProvider(t, providing(ws))
}

// nonsense is what every fault of a guest is: an error that names it, and that is
// no failure of the plugin.
func mustBeNonsense(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "the guest in workspace ws answered ") {
		t.Errorf("%s: error %v", what, err)
	}
	var plug *workspace.PluginError
	if errors.As(err, &plug) || errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("%s: error %#v", what, err)
	}
}

func TestGuestThatAnswersNonsenseToUnaryCalls(t *testing.T) {
	guest := &scriptedGuest{}
	_, client := scripted(t, guest)
	ctx := t.Context()
	for what, info := range map[string]*berthv1.FileInfo{
		"nothing":         nil,
		"a path":          {Name: []byte("a/b")},
		"a NUL":           {Name: []byte("a\x00b")},
		"a negative size": {Name: []byte("a"), Size: -1},
		"a bad target":    {Name: []byte("a"), Link: true, Target: []byte("\x00")},
	} {
		guest.stat = func() (*berthv1.StatResponse, error) { return &berthv1.StatResponse{Info: info}, nil }
		_, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		mustBeNonsense(t, what, fromCall(err))
	}
	for _, path := range []string{"", "a", "/a\x00", strings.Repeat("x", 100_000)} {
		guest.realPath = func() (*berthv1.RealPathResponse, error) { return &berthv1.RealPathResponse{Path: []byte(path)}, nil }
		_, err := client.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("a")})
		mustBeNonsense(t, "real path", fromCall(err))
		if len(err.Error()) > 4<<10 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	guest.readlink = func() (*berthv1.ReadlinkResponse, error) {
		return &berthv1.ReadlinkResponse{Target: []byte("a\x00")}, nil
	}
	_, err := client.Readlink(ctx, &berthv1.ReadlinkRequest{Workspace: key("ws"), Path: []byte("a")})
	mustBeNonsense(t, "readlink", fromCall(err))
	guest.stat = func() (*berthv1.StatResponse, error) {
		return &berthv1.StatResponse{Info: &berthv1.FileInfo{Name: make([]byte, maxGuestMessage)}}, nil
	}
	_, err = client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
	mustBeNonsense(t, "a large message", fromCall(err))
	for _, code := range []codes.Code{codes.Unknown, codes.Internal, codes.Code(99)} {
		guest.stat = func() (*berthv1.StatResponse, error) { return nil, status.Error(code, "boom \xff") }
		_, err = client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		mustBeNonsense(t, code.String(), fromCall(err))
	}
}

// Errors of a guest keep their kinds, and claim nothing of the plugin.
func TestErrorsOfGuests(t *testing.T) {
	guest := &scriptedGuest{}
	_, client := scripted(t, guest)
	for _, test := range []struct {
		err  error
		want error
	}{
		{wire.ToStatus(syscall.ENOTDIR), syscall.ENOTDIR},
		{wire.ToStatus(workspace.ErrTransient), workspace.ErrTransient},
		{wire.ToStatus(fmt.Errorf("x: %w", workspace.ErrInvalid)), workspace.ErrInvalid},
		{status.Error(codes.NotFound, "no"), fs.ErrNotExist},
		{status.Error(codes.Unimplemented, "no"), errors.ErrUnsupported},
		{status.Error(codes.ResourceExhausted, "busy"), workspace.ErrTransient},
		{status.Error(codes.Unavailable, "gone"), workspace.ErrTransient},
		{status.Error(codes.Canceled, "gone"), workspace.ErrTransient},
	} {
		guest.stat = func() (*berthv1.StatResponse, error) { return nil, test.err }
		_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		mustBe(t, fromCall(err), test.want)
	}
	guest.stat = func() (*berthv1.StatResponse, error) {
		return nil, wire.ToStatus(fmt.Errorf("%w: %w", &workspace.PluginError{Provider: "p", Reason: "it lies"}, &workspace.TimeoutError{Timeout: time.Second}))
	}
	_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
	var plug *workspace.PluginError
	var timeout *workspace.TimeoutError
	if err = fromCall(err); err == nil || errors.As(err, &plug) || errors.As(err, &timeout) {
		t.Errorf("error %#v", err)
	}
}

func TestGuestThatAnswersNonsenseToReads(t *testing.T) {
	info := &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Info{Info: &berthv1.FileInfo{Name: []byte("a")}}}
	data := func(s string) *berthv1.ReadFileResponse {
		return &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte(s)}}
	}
	end := func(n int64) *berthv1.ReadFileResponse {
		return &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_End{End: n}}
	}
	guest := &scriptedGuest{}
	_, client := scripted(t, guest)
	for what, test := range map[string]struct {
		length   int64
		messages []*berthv1.ReadFileResponse
	}{
		"nothing":       {0, nil},
		"no end":        {0, []*berthv1.ReadFileResponse{info, data("abc")}},
		"data first":    {0, []*berthv1.ReadFileResponse{data("abc"), info, end(3)}},
		"end first":     {0, []*berthv1.ReadFileResponse{end(0)}},
		"info twice":    {0, []*berthv1.ReadFileResponse{info, info, end(0)}},
		"a wrong end":   {0, []*berthv1.ReadFileResponse{info, data("abc"), end(4)}},
		"too much":      {2, []*berthv1.ReadFileResponse{info, data("abc"), end(3)}},
		"bad info":      {0, []*berthv1.ReadFileResponse{{Message: &berthv1.ReadFileResponse_Info{Info: &berthv1.FileInfo{Size: -3}}}}},
		"a large chunk": {0, []*berthv1.ReadFileResponse{info, data(strings.Repeat("x", maxGuestMessage))}},
	} {
		guest.read = func(stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
			for _, m := range test.messages {
				if err := stream.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
		_, err := downloadFile(t, client, &berthv1.ReadFileRequest{Path: []byte("a"), Length: test.length})
		mustBeNonsense(t, what, err)
	}
	guest.read = func(stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
		for _, m := range []*berthv1.ReadFileResponse{{}, info, {}, data(""), data("abc"), {}, end(3), data("more")} {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	got, err := downloadFile(t, client, &berthv1.ReadFileRequest{Path: []byte("a")})
	if string(got) != "abc" || err != nil {
		t.Errorf("with messages of a newer version: %q, %v", got, err)
	}
}

func TestGuestThatAnswersNonsenseToWrites(t *testing.T) {
	guest := &scriptedGuest{}
	ws, client := scripted(t, guest)
	data := make([]byte, 3<<20)
	for what, write := range map[string]func(uploadStream) error{
		"at once": func(stream uploadStream) error {
			return stream.SendAndClose(&berthv1.WriteFileResponse{Written: 3 << 20})
		},
		"nothing": func(uploadStream) error { return nil },
		"too much": func(stream uploadStream) error {
			drain(stream)
			return stream.SendAndClose(&berthv1.WriteFileResponse{Written: 4 << 20})
		},
		"negative": func(stream uploadStream) error {
			drain(stream)
			return stream.SendAndClose(&berthv1.WriteFileResponse{Written: -1})
		},
	} {
		guest.write = write
		_, err := uploadFile(t, client, "a", data)
		mustBeNonsense(t, what, err)
	}
	// A host that breaks off, or miscounts, publishes nothing.
	begun, seen := make(chan struct{}), make(chan error, 1)
	guest.write = func(stream uploadStream) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		close(begun)
		seen <- drain(stream)
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.WriteFile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*berthv1.WriteFileRequest{
		{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: key("ws"), Path: []byte("a")}}},
		{Message: &berthv1.WriteFileRequest_Data{Data: []byte("abc")}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	cancel()
	if err := <-seen; status.Code(err) != codes.Canceled {
		t.Errorf("the guest saw %v", err)
	}
	ws.checkReleased(t)
}

func drain(stream uploadStream) error {
	for {
		if _, err := stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func TestGuestThatAnswersNonsenseToListings(t *testing.T) {
	guest := &scriptedGuest{}
	_, client := scripted(t, guest)
	for what, names := range map[string][]string{
		"no end": nil, "a path": {"a/b"}, "a dot": {"."}, "two dots": {".."}, "no name": {""}, "a NUL": {"\x00"},
		"twice": {"a", "a"}, "unsorted": {"b", "a"},
	} {
		guest.list = func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
			for i, name := range names { // in messages of their own
				m := &berthv1.ReadDirResponse{Entries: []*berthv1.FileInfo{{Name: []byte(name)}}, End: i == len(names)-1}
				if err := stream.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
		_, err := listDir(t, client, "a")
		mustBeNonsense(t, what, err)
	}
	guest.listRuns = func(stream listRunsStream) error {
		return stream.Send(&berthv1.ListRunsResponse{RunId: "../x"})
	}
	_, err := collectRuns(t, client)
	mustBeNonsense(t, "a run's id", err)
}

func TestRelayedRunsAreListedAndStopped(t *testing.T) {
	guest := &scriptedGuest{listRuns: func(stream listRunsStream) error {
		return stream.Send(&berthv1.ListRunsResponse{RunId: "run-1", Detached: true, Started: &berthv1.Time{Seconds: 5}, Args: [][]byte{[]byte("a\xff")}})
	}}
	ws, client := scripted(t, guest)
	runs, err := collectRuns(t, client)
	if err != nil || len(runs) != 1 || runs[0].GetRunId() != "run-1" || !runs[0].GetDetached() || runs[0].GetStarted().GetSeconds() != 5 || string(runs[0].GetArgs()[0]) != "a\xff" {
		t.Errorf("runs %v, %v", runs, err)
	}
	if _, err := client.StopRun(t.Context(), &berthv1.StopRunRequest{Workspace: key("ws"), RunId: "run-1"}); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(guest.stopped); got != "[inside/run-1]" {
		t.Errorf("stopped %s", got)
	}
	ws.checkReleased(t)
}

// A provider whose connections, or whose words about them, fail.
func TestRelayThatCannotConnect(t *testing.T) {
	guest := &scriptedGuest{stat: func() (*berthv1.StatResponse, error) { return nil, status.Error(codes.Unavailable, "broken pipe") }}
	ws, _ := scripted(t, guest)
	provider := providing(ws)
	attached := atomic.Int64{}
	provider.attach = func(context.Context, string) (Workspace, error) { attached.Add(1); return ws, nil }
	client := connect(t, quiet(pluginOf(provider)))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	stat := func() error {
		_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		return fromCall(err)
	}
	gone := fmt.Errorf("the container was removed: %w", workspace.ErrUnavailable)
	ws.explain = func(_ context.Context, err error) error {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("explain %v", err)
		}
		return gone
	}
	if err := stat(); !errors.Is(err, workspace.ErrUnavailable) || !strings.Contains(err.Error(), "the container was removed") {
		t.Errorf("error %v", err)
	}
	before := attached.Load()
	_ = stat()
	if attached.Load() != before+1 {
		t.Error("a workspace that is gone was not attached again")
	}
	ws.explain = func(context.Context, error) error { panic("explaining") }
	if err := stat(); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("error %v", err)
	}
	ws.explain = func(context.Context, error) error { return nil }
	mustBe(t, stat(), workspace.ErrTransient)
	ws.checkReleased(t)
	for _, conn := range []*relay.Conn{nil, {}, {Client: ws.client}} {
		ws.wrap = func(*relay.Conn) *relay.Conn { ws.held.Add(-1); return conn }
		if err := stat(); err == nil || !strings.Contains(err.Error(), "no connection") {
			t.Errorf("error %v", err)
		}
	}
	ws.connect = func(context.Context) error { panic("connecting") }
	if err := stat(); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("error %v", err)
	}
	ws.connect = func(context.Context) error { return gone }
	mustBe(t, stat(), workspace.ErrUnavailable)
	_, err := waitStatus(startRun(t, t.Context(), client, &berthv1.RunStart{}))
	mustBe(t, err, workspace.ErrUnavailable)
}

// waitStatus is wait for a run whose stream may end without an outcome.
func waitStatus(c *runCall) (code int, err error) {
	for c.outcome == nil {
		if err := c.recv(); err != nil {
			return -1, fromCall(err)
		}
	}
	if detail := c.outcome.GetError(); detail != nil {
		return -1, wire.FromDetail(detail)
	}
	return int(c.outcome.GetExited().GetCode()), nil
}
