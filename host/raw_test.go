package host_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// raw is a plugin that speaks the protocol by hand, so that it can break it. What
// a test does not set answers as a good plugin would.
type raw struct {
	berthv1.UnimplementedProviderServer
	schema      string
	environment []string
	features    []string

	configure func(*berthv1.ConfigureRequest) error
	create    func(*berthv1.CreateRequest, grpc.ServerStreamingServer[berthv1.OpenResponse]) error
	attach    func(*berthv1.AttachRequest, grpc.ServerStreamingServer[berthv1.OpenResponse]) error
	destroy   func(*berthv1.DestroyRequest) error
	list      func(grpc.ServerStreamingServer[berthv1.ListResponse]) error
	run       func(grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]) error
	attachRun func(grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]) error
	stopRun   func(*berthv1.StopRunRequest) error
	listRuns  func(grpc.ServerStreamingServer[berthv1.ListRunsResponse]) error
	stat      func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error)
	mkdir     func(context.Context, *berthv1.MkdirAllRequest) error
	realPath  func() string
	readDir   func(grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error
	readFile  func(*berthv1.ReadFileRequest, grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error
	writeFile func(grpc.ClientStreamingServer[berthv1.WriteFileRequest, berthv1.WriteFileResponse]) error

	calls atomic.Int64 // all but Describe and Configure
}

func (p *raw) Register(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, p) }

func (p *raw) Describe(context.Context, *berthv1.DescribeRequest) (*berthv1.DescribeResponse, error) {
	schema := p.schema
	if schema == "" {
		schema = `{"type":"object"}`
	}
	return &berthv1.DescribeResponse{Name: "raw", Version: "1", ConfigSchema: []byte(schema), Environment: p.environment}, nil
}

func (p *raw) Configure(_ context.Context, req *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	if p.configure != nil {
		if err := p.configure(req); err != nil {
			return nil, err
		}
	}
	return &berthv1.ConfigureResponse{}, nil
}

func (p *raw) opened(id string, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	return stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: &berthv1.Opened{
		Id: id, Incarnation: []byte("first"), WorkingDir: []byte("/work"), Features: p.features,
	}}})
}

func (p *raw) Create(req *berthv1.CreateRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	p.calls.Add(1)
	if p.create != nil {
		return p.create(req, stream)
	}
	if req.GetName() != "" {
		return p.opened(req.GetName(), stream)
	}
	return p.opened(req.GetToken(), stream)
}

func (p *raw) Attach(req *berthv1.AttachRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	p.calls.Add(1)
	if p.attach != nil {
		return p.attach(req, stream)
	}
	return p.opened(req.GetWorkspace().GetId(), stream)
}

func (p *raw) Destroy(_ context.Context, req *berthv1.DestroyRequest) (*berthv1.DestroyResponse, error) {
	p.calls.Add(1)
	if p.destroy != nil {
		return &berthv1.DestroyResponse{}, p.destroy(req)
	}
	return &berthv1.DestroyResponse{}, nil
}

func (p *raw) List(_ *berthv1.ListRequest, stream grpc.ServerStreamingServer[berthv1.ListResponse]) error {
	p.calls.Add(1)
	return p.list(stream)
}

func (p *raw) Run(stream grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]) error {
	p.calls.Add(1)
	return p.run(stream)
}

func (p *raw) AttachRun(stream grpc.BidiStreamingServer[berthv1.RunRequest, berthv1.RunResponse]) error {
	p.calls.Add(1)
	return p.attachRun(stream)
}

func (p *raw) StopRun(_ context.Context, req *berthv1.StopRunRequest) (*berthv1.StopRunResponse, error) {
	p.calls.Add(1)
	return &berthv1.StopRunResponse{}, p.stopRun(req)
}

func (p *raw) ListRuns(_ *berthv1.ListRunsRequest, stream grpc.ServerStreamingServer[berthv1.ListRunsResponse]) error {
	p.calls.Add(1)
	return p.listRuns(stream)
}

func (p *raw) Stat(ctx context.Context, req *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	p.calls.Add(1)
	if p.stat != nil {
		return p.stat(ctx, req)
	}
	return &berthv1.StatResponse{Info: &berthv1.FileInfo{Name: []byte("f"), Mode: 0o100644, Size: 1}}, nil
}

func (p *raw) MkdirAll(ctx context.Context, req *berthv1.MkdirAllRequest) (*berthv1.MkdirAllResponse, error) {
	p.calls.Add(1)
	return &berthv1.MkdirAllResponse{}, p.mkdir(ctx, req)
}

func (p *raw) RealPath(context.Context, *berthv1.RealPathRequest) (*berthv1.RealPathResponse, error) {
	p.calls.Add(1)
	return &berthv1.RealPathResponse{Path: []byte(p.realPath())}, nil
}

func (p *raw) ReadDir(_ *berthv1.ReadDirRequest, stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
	p.calls.Add(1)
	return p.readDir(stream)
}

func (p *raw) ReadFile(req *berthv1.ReadFileRequest, stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
	p.calls.Add(1)
	return p.readFile(req, stream)
}

func (p *raw) WriteFile(stream grpc.ClientStreamingServer[berthv1.WriteFileRequest, berthv1.WriteFileResponse]) error {
	p.calls.Add(1)
	return p.writeFile(stream)
}

// newHost serves p in this process as the provider "raw".
func newHost(t testing.TB, p *raw, change ...func(*host.Config)) *host.Host {
	t.Helper()
	config := host.Config{Providers: map[string]host.Provider{"raw": {InProcess: p}}}
	for _, c := range change {
		c(&config)
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}

func newWorkspace(t testing.TB, p *raw, change ...func(*host.Config)) workspace.Workspace {
	t.Helper()
	ws, err := newHost(t, p, change...).Workspace("raw")
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// deadlines makes all of them d.
func deadlines(d time.Duration) func(*host.Config) {
	return func(c *host.Config) { c.Deadlines = host.Deadlines{Read: d, Change: d, Open: d, Idle: d} }
}

// waitFor polls until ok, for as long as a loaded machine may need.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after 30 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// gate is opened once.
type gate struct {
	once sync.Once
	ch   chan struct{}
}

func newGate(t testing.TB) *gate {
	g := &gate{ch: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.ch) }) }
