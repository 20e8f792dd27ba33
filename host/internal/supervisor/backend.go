package supervisor

import (
	"context"
	"errors"
	"net"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/host/internal/process"
	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/shared/wire"
)

// backend is where a plugin runs: a process, or this one.
type backend interface {
	Conn() grpc.ClientConnInterface
	PID() int
	Version() int
	Exited() <-chan struct{}
	Finished() <-chan struct{}
	ExitStatus() string
	Reason() string
	OutOfMemory() string
	Bounds() string
	Stderr() []string
	Dropped() uint64
	Kill(reason string)
	Stop(ctx context.Context) error
	Close() error
}

var (
	_ backend = (*process.Process)(nil)
	_ backend = (*local)(nil)
)

// localWindow is the pipe's buffer of each direction.
const localWindow = 1 << 20

// local serves a provider in this process, over a pipe, with the same wire.
type local struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	exited chan struct{}
	once   sync.Once
	ending sync.WaitGroup // of the server's Stop

	closing  sync.Once // Stop and the watch both close
	closeErr error

	mu     sync.Mutex
	reason string
}

func serveLocal(register func(grpc.ServiceRegistrar), tracer trace.TracerProvider) (*local, error) {
	l := &local{server: grpc.NewServer(append(wire.ServerOptions(), tracing.ServerOption(tracer))...), exited: make(chan struct{})}
	register(l.server)
	listener := bufconn.Listen(localWindow)
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		tracing.DialOption(tracer),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if exited(l.exited) {
				return nil, errors.New("provider in this process has ended")
			}
			return listener.DialContext(ctx)
		}),
	}
	conn, err := grpc.NewClient("passthrough:in-process", append(options, wire.DialOptions()...)...)
	if err != nil {
		return nil, err
	}
	l.conn = conn
	go func() {
		defer close(l.exited)
		_ = l.server.Serve(listener) // ends with Kill
	}()
	return l, nil
}

// Conn is the connection over the pipe.
func (l *local) Conn() grpc.ClientConnInterface { return l.conn }

// PID is zero: there is no process of its own.
func (l *local) PID() int { return 0 }

// Version is this host's own.
func (l *local) Version() int { return wire.ProtocolV1 }

// Exited is closed when the server has ended.
func (l *local) Exited() <-chan struct{} { return l.exited }

// Finished is the same: there is no output to read.
func (l *local) Finished() <-chan struct{} { return l.exited }

// ExitStatus is empty.
func (l *local) ExitStatus() string { return "" }

// OutOfMemory is empty: there is no process to end.
func (*local) OutOfMemory() string { return "" }

// Bounds is empty.
func (*local) Bounds() string { return "" }

// Stderr is this process's own, and not ours to keep.
func (l *local) Stderr() []string { return nil }

// Dropped is zero.
func (l *local) Dropped() uint64 { return 0 }

// Reason tells why the host ended it.
func (l *local) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// Kill stops the server, which breaks all calls and cancels their handlers.
func (l *local) Kill(reason string) {
	l.mu.Lock()
	if l.reason == "" {
		l.reason = reason
	}
	l.mu.Unlock()
	l.once.Do(func() { l.ending.Go(l.server.Stop) }) // Stop waits for connections
}

// Stop is Close: calls in flight were waited for.
func (l *local) Stop(context.Context) error { return l.Close() }

// Close ends the server and waits for it.
func (l *local) Close() error {
	l.Kill("it was stopped")
	<-l.exited
	l.closing.Do(func() { l.closeErr = l.conn.Close() })
	return l.closeErr
}
