package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// helloWait is how long a greeting may take, from the first byte to the
	// features: a guest answers within milliseconds, on a busy machine later.
	helloWait = 20 * time.Second
	// pingAfter is how long a connection may be silent before this side asks
	// whether the guest is there, and pingWait how long it waits for the answer:
	// 15 s together, as on the guest's side.
	pingAfter = 10 * time.Second
	pingWait  = 5 * time.Second
	// maxProgress is how many messages may come before the workspace is open.
	maxProgress = 1000
)

// ErrBroken is that of a connection to a guest that has ended.
var ErrBroken = errors.New("the connection to the guest has ended")

// Client is one connection to a guest. Its methods may be called concurrently.
type Client struct {
	stream   *stream
	conn     *grpc.ClientConn
	provider berthv1.ProviderClient
	hello    Hello
	features []workspace.Feature
	registry []byte
	close    func() error
}

// Connect greets the guest at the other end of stream, and takes the stream over:
// it is closed with the client, or at once if this fails. The version is this
// program's. A guest with which no protocol is shared is a [*ProtocolError], a
// stream that ends meanwhile [ErrBroken].
func Connect(ctx context.Context, conn net.Conn, version string) (*Client, error) {
	s := newStream(conn)
	cc, err := grpc.NewClient("passthrough:guest", dialOptions(s)...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greeting the guest: %w", err), s.Close())
	}
	c := &Client{stream: s, conn: cc, provider: berthv1.NewProviderClient(cc)}
	c.close = sync.OnceValue(func() error { return errors.Join(cc.Close(), s.Close()) })
	ctx, cancel := context.WithTimeoutCause(ctx, helloWait, fmt.Errorf("no answer in %v", helloWait))
	defer cancel()
	if err := c.greet(ctx, version); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		} else if s.broken() {
			err = fmt.Errorf("%w: %w", ErrBroken, err)
		}
		_ = c.close() // its error would be that of the stream
		return nil, fmt.Errorf("greeting the guest: %w", err)
	}
	return c, nil
}

func dialOptions(s *stream) []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.take() }),
		grpc.WithNoProxy(),
		// There is one stream: nothing to try again, nor to give up while idle.
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: helloWait}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait, PermitWithoutStream: true}),
	}, wire.DialOptions()...)
}

// greet says hello and opens the guest's workspace.
func (c *Client) greet(ctx context.Context, version string) error {
	answer, err := guestv1.NewGuestClient(c.conn).Hello(ctx, &guestv1.HelloRequest{
		ClientVersion: printable(version), ProtocolMin: protocolMin, ProtocolMax: protocolMax,
	}, grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return err
	}
	if c.hello, err = readHello(answer, version); err != nil {
		return err
	}
	opened, err := c.attach(ctx)
	if err != nil {
		return fmt.Errorf("opening the guest's workspace: %w", err)
	}
	c.features, err = readOpened(opened, c.hello)
	c.registry = opened.GetRunRegistry()
	return err
}

func (c *Client) attach(ctx context.Context) (*berthv1.Opened, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, read to its end or not
	answers, err := c.provider.Attach(ctx, &berthv1.AttachRequest{Workspace: c.Key()}, grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	for range maxProgress {
		answer, err := answers.Recv()
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		if opened := answer.GetOpened(); opened != nil {
			return opened, nil
		}
	}
	return nil, fmt.Errorf("it sends progress and nothing else")
}

// Hello is what the guest said of itself.
func (c *Client) Hello() Hello { return c.hello }

// Features are those of the guest's workspace.
func (c *Client) Features() []workspace.Feature { return c.features }

// RunRegistry is who notes the runs of the guest's workspace: random bytes, and others
// whenever what was noted is lost. Guests of older versions do not say.
func (c *Client) RunRegistry() []byte { return c.registry }

// Provider is the guest's berth.v1.
func (c *Client) Provider() berthv1.ProviderClient { return c.provider }

// Key names the guest's workspace in calls on it.
func (c *Client) Key() *berthv1.WorkspaceKey {
	return &berthv1.WorkspaceKey{Id: c.hello.workspaceID}
}

// Broken is closed when the connection has ended, whoever ended it.
func (c *Client) Broken() <-chan struct{} { return c.stream.closed }

// Close ends the connection, and all calls on it.
func (c *Client) Close() error { return c.close() }
