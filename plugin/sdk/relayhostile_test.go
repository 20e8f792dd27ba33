package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
