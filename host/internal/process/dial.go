package process

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/shared/wire"
)

// conns are the connections that go-plugin opens for one process. It loses one
// whose first call fails, with its goroutines; so they are kept here and closed
// in the end. The zero value is ready.
type conns struct {
	mu     sync.Mutex
	list   []*grpc.ClientConn
	closed bool
}

func (c *conns) add(conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return
	}
	for _, known := range c.list {
		if known == conn {
			return
		}
	}
	c.list = append(c.list, conn)
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.list {
		_ = conn.Close()
	}
	c.list = nil
}

const (
	// goPluginService begins the methods of go-plugin's own services, whose
	// streams are the first calls on every connection that it opens.
	goPluginService = "/plugin."
	// brokerService lets a plugin ask the host to dial out. Nothing here uses
	// it, so a plugin is not given it.
	brokerService = "/plugin.GRPCBroker/"
)

func (p *Process) dialOptions(cfg Config) []grpc.DialOption {
	intercept := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if strings.HasPrefix(method, goPluginService) {
			p.conns.add(conn)
		}
		if strings.HasPrefix(method, brokerService) {
			return nil, status.Error(codes.Unimplemented, "the broker is not used")
		}
		return streamer(ctx, desc, conn, method, opts...)
	}
	options := []grpc.DialOption{
		grpc.WithContextDialer(p.dial),
		grpc.WithChainStreamInterceptor(intercept),
		tracing.DialOption(cfg.TracerProvider),
	}
	return append(options, wire.DialOptions()...)
}

// address is where the plugin listens.
type address struct{ network, path string }

// dial connects to the plugin's socket and checks who listens there. go-plugin's
// own dialer takes no context.
func (p *Process) dial(ctx context.Context, _ string) (net.Conn, error) {
	addr := p.addr.Load()
	if addr == nil {
		return nil, errors.New("plugin has no address yet")
	}
	select {
	case <-p.exited:
		return nil, errors.New("plugin process has ended")
	default:
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, addr.network, addr.path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
