package sdk_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// guarded is a workspace whose guest is reached over a connection.
type guarded struct {
	dir    string
	client berthv1.ProviderClient
}

func (w guarded) ID() string          { return "ws" }
func (w guarded) Incarnation() string { return "1" }
func (w guarded) WorkingDir() string  { return w.dir }
func (w guarded) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureCommands, workspace.FeatureShell, workspace.FeatureFiles, workspace.FeatureAttachRun}
}

func (w guarded) BerthRelay(context.Context) (*relay.Conn, error) {
	return &relay.Conn{Client: w.client, Key: &berthv1.WorkspaceKey{Id: "ws", Incarnation: []byte("1")}}, nil
}

func (w guarded) RunRegistry() []byte { return nil }

// only is a provider of one workspace.
type only struct{ ws sdk.Workspace }

func (p only) Create(context.Context, sdk.CreateRequest) (sdk.Workspace, error) { return p.ws, nil }
func (p only) Attach(context.Context, string) (sdk.Workspace, error)            { return p.ws, nil }
func (p only) Destroy(context.Context, string) error                            { return nil }

// serveUnix serves a provider on a socket, as a plugin and a guest do.
func serveUnix(tb testing.TB, provider sdk.Provider, durable bool) berthv1.ProviderClient {
	tb.Helper()
	type none struct{}
	plugin := sdk.Plugin[none]{Name: "unix", DurableRuns: durable, New: func(context.Context, none, sdk.Env) (sdk.Provider, error) { return provider, nil }}
	server := &stoppable{Server: grpc.NewServer(wire.ServerOptions()...)}
	plugin.Register(server)
	socket := filepath.Join(tb.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+socket, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, wire.DialOptions()...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = conn.Close()
		server.stop()
		server.Stop()
		<-served
	})
	client := berthv1.NewProviderClient(conn)
	if _, err := client.Configure(tb.Context(), &berthv1.ConfigureRequest{Provider: "unix"}); err != nil {
		tb.Fatal(err)
	}
	return client
}

// BenchmarkRelay compares a workspace of this machine with the same one behind a
// guest: the difference is what the relay costs.
func BenchmarkRelay(b *testing.B) {
	dir, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	clients := map[string]berthv1.ProviderClient{
		"direct":  serveUnix(b, folder{dir}, false),
		"durable": serveUnix(b, folder{dir}, true),
		"relayed": serveUnix(b, only{guarded{dir, serveUnix(b, folder{dir}, true)}}, false),
	}
	data := make([]byte, 8<<20)
	for _, name := range []string{"direct", "durable", "relayed"} {
		client := clients[name]
		b.Run("stat/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := client.Stat(b.Context(), &berthv1.StatRequest{Workspace: &berthv1.WorkspaceKey{Id: "ws"}, Path: []byte(".")}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("true/"+name, func(b *testing.B) {
			for b.Loop() {
				noop(b, client, workspace.NewToken(), name != "direct")
			}
		})
		b.Run("write8MiB/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				upload(b, client, data)
			}
		})
		b.Run("read8MiB/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				download(b, client, len(data))
			}
		})
	}
}

// noop runs a command as a host does, and takes its outcome.
func noop(tb testing.TB, client berthv1.ProviderClient, id string, take bool) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	stream, err := client.Run(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	start := &berthv1.RunStart{Workspace: &berthv1.WorkspaceKey{Id: "ws"}, RunId: id, Args: [][]byte{[]byte("/bin/true")}}
	if err := stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: start}}); err != nil {
		tb.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			tb.Fatal(err)
		}
		if outcome := m.GetOutcome(); outcome != nil {
			if outcome.GetExited() == nil || outcome.GetExited().GetCode() != 0 {
				tb.Fatal(outcome)
			}
			break
		}
	}
	if !take {
		return
	}
	if err := stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{Outcome: true}}}); err != nil {
		tb.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		tb.Fatal(err)
	}
}

func upload(tb testing.TB, client berthv1.ProviderClient, data []byte) {
	tb.Helper()
	stream, err := client.WriteFile(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	send := func(m *berthv1.WriteFileRequest) {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			tb.Fatal(err)
		}
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: &berthv1.WorkspaceKey{Id: "ws"}, Path: []byte("file")}}})
	for rest := data; len(rest) > 0; {
		n := min(len(rest), wire.ChunkSize)
		send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: rest[:n]}})
		rest = rest[n:]
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: int64(len(data))}})
	if _, err := stream.CloseAndRecv(); err != nil {
		tb.Fatal(err)
	}
}

func download(tb testing.TB, client berthv1.ProviderClient, size int) {
	tb.Helper()
	stream, err := client.ReadFile(tb.Context(), &berthv1.ReadFileRequest{Workspace: &berthv1.WorkspaceKey{Id: "ws"}, Path: []byte("file")})
	if err != nil {
		tb.Fatal(err)
	}
	got := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		got += len(m.GetData())
	}
	if got != size {
		tb.Fatalf("%d bytes of %d", got, size)
	}
}
