package wire_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// peer is a server of berth.v1 that fails as it is told, behind a real gRPC
// connection with the options of both sides.
type peer struct {
	berthv1.UnimplementedProviderServer
	client berthv1.ProviderClient

	mu   sync.Mutex
	err  error                       // what Stat answers, as it is
	out  []*berthv1.ReadFileResponse // what ReadFile sends
	sent map[string]int              // how many of them it sent, by path
}

func newPeer(t testing.TB) *peer {
	return newPeerWith(t, wire.ServerOptions(), wire.DialOptions())
}

// newPeerWith is for one side that does not keep to our options.
func newPeerWith(t testing.TB, serverOpts []grpc.ServerOption, dialOpts []grpc.DialOption) *peer {
	t.Helper()
	p := &peer{sent: map[string]int{}}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(serverOpts...)
	berthv1.RegisterProviderServer(server, p)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()

	// Caps as go-plugin sets them come first: ours must win.
	opts := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2<<30-1), grpc.MaxCallSendMsgSize(2<<30-1)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}
	conn, err := grpc.NewClient("passthrough:peer", append(opts, dialOpts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	p.client = berthv1.NewProviderClient(conn)
	return p
}

// answer has the server end a call with exactly err and returns what the client
// gets of it.
func (p *peer) answer(ctx context.Context, err error) error {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	_, got := p.client.Stat(ctx, &berthv1.StatRequest{})
	return got
}

// cross sends an error over the connection as the SDK and the host do.
func (p *peer) cross(ctx context.Context, err error) error {
	return wire.FromStatus(p.answer(ctx, wire.ToStatus(err)))
}

func (p *peer) Stat(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &berthv1.StatResponse{}, p.err
}

func (p *peer) ReadFile(req *berthv1.ReadFileRequest, stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
	p.mu.Lock()
	out := p.out
	p.mu.Unlock()
	for _, msg := range out {
		if err := stream.Send(msg); err != nil {
			return err
		}
		p.mu.Lock()
		p.sent[string(req.GetPath())]++
		p.mu.Unlock()
	}
	return nil
}
