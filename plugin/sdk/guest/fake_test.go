package guest_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
)

// fake is a guest of any version, in this process.
type fake struct {
	guestv1.UnimplementedGuestServer
	berthv1.UnimplementedProviderServer

	hello  func(*guestv1.HelloResponse)
	opened func(*berthv1.Opened)
	asked  chan *guestv1.HelloRequest
	ready  func(context.Context) // is called before an answer

	listener net.Listener

	mu    sync.Mutex
	dials int
	conns []net.Conn
}

// startFake starts a guest that answers as ours does but for what change does.
func startFake(t testing.TB, change func(*fake)) *fake {
	t.Helper()
	f := &fake{hello: func(*guestv1.HelloResponse) {}, opened: func(*berthv1.Opened) {}, asked: make(chan *guestv1.HelloRequest, 100)}
	if change != nil {
		change(f)
	}
	var err error
	if f.listener, err = net.Listen("unix", filepath.Join(t.TempDir(), "s")); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	guestv1.RegisterGuestServer(server, f)
	berthv1.RegisterProviderServer(server, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(f.listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return f
}

func (f *fake) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", f.listener.Addr().String())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	f.conns = append(f.conns, conn)
	return conn, err
}

// dialed is how many connections were made, and cut ends the last one.
func (f *fake) dialed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.conns[len(f.conns)-1].Close()
}

func (f *fake) Hello(ctx context.Context, req *guestv1.HelloRequest) (*guestv1.HelloResponse, error) {
	if f.ready != nil {
		f.ready(ctx)
	}
	select {
	case f.asked <- req:
	default:
	}
	answer := &guestv1.HelloResponse{
		ProtocolMin: 1, ProtocolMax: 1, Version: "fake", Digest: make([]byte, 32), BootId: make([]byte, 16),
		WorkingDir: []byte("/work"), Uid: 1000, Gid: 1000, WorkspaceId: "guest",
	}
	f.hello(answer)
	return answer, nil
}

func (f *fake) Attach(_ *berthv1.AttachRequest, stream grpc.ServerStreamingServer[berthv1.OpenResponse]) error {
	opened := &berthv1.Opened{Id: "guest", WorkingDir: []byte("/work"), Features: []string{"commands", "files"}}
	f.opened(opened)
	return stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: opened}})
}

func (*fake) Stat(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	return &berthv1.StatResponse{Info: &berthv1.FileInfo{Name: []byte("f")}}, nil
}
