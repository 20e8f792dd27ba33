package sdk

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// stoppable collects what Register hands to OnStop.
type stoppable struct {
	*grpc.Server
	stop []func()
}

func (s *stoppable) OnStop(stop func()) { s.stop = append(s.stop, stop) }

// connect serves a plugin over an in-memory connection.
func connect[C any](t testing.TB, p Plugin[C]) berthv1.ProviderClient {
	t.Helper()
	return connectTo(t, p.Register)
}

// connectServer is the same for a server that the test looks into.
func connectServer(t testing.TB, s *server) berthv1.ProviderClient {
	t.Helper()
	return connectTo(t, s.register)
}

func connectTo(t testing.TB, register func(grpc.ServiceRegistrar)) berthv1.ProviderClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := &stoppable{Server: grpc.NewServer(wire.ServerOptions()...)}
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}, wire.DialOptions()...)
	conn, err := grpc.NewClient("passthrough:///plugin", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		for _, stop := range server.stop {
			stop()
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return berthv1.NewProviderClient(conn)
}

// serveProvider connects to provider, configured.
func serveProvider(t testing.TB, provider Provider) berthv1.ProviderClient {
	t.Helper()
	return serveConfigured(t, provider, `{}`)
}

func serveConfigured(t testing.TB, provider Provider, config string) berthv1.ProviderClient {
	t.Helper()
	client := connect(t, pluginOf(provider))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "test", Config: []byte(config)}); err != nil {
		t.Fatalf("configure: %v", err)
	}
	return client
}

func pluginOf(provider Provider) Plugin[testConfig] {
	return Plugin[testConfig]{
		Name: "fake", Version: "1.2.3",
		New: func(context.Context, testConfig, Env) (Provider, error) { return provider, nil },
	}
}

func key(id string) *berthv1.WorkspaceKey { return &berthv1.WorkspaceKey{Id: id} }

// fromCall is the error as a host sees it.
func fromCall(err error) error { return wire.FromStatus(err) }

// eventually polls.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// quiet is p without the stacks of panics that a test makes.
func quiet[C any](p Plugin[C]) Plugin[C] {
	p.Logger = hclogNull()
	return p
}

func hclogNull() hclog.Logger { return hclog.NewNullLogger() }
