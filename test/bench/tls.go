package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// guarding is a way to keep others from a plugin's socket.
type guarding struct {
	name string
	mtls bool // go-plugin's AutoMTLS
	peer bool // a folder of mode 0700, and the credentials of who is at the other end

	starts, calls, reads timing.Samples
}

// tls measures what keeping others from a plugin's socket costs, on the state plugin
// under go-plugin's own client, which all ways share: the start up to the answer to
// the first call, a small call, and a file of 1 MiB.
func tls(ctx context.Context, out io.Writer, bin, dir string) error {
	ways := []*guarding{
		{name: "nothing"},
		{name: "folder of mode 0700, peer credentials (Berth's)", peer: true},
		{name: "go-plugin's AutoMTLS", mtls: true},
	}
	const rounds = 40
	for range rounds { // in turns
		for _, way := range ways {
			if err := way.measure(ctx, filepath.Join(bin, wire.BinaryPrefix+"state"), dir); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
	}
	fmt.Fprintln(out, "| what guards the socket | start to first answer, p50 | p95 | small call, p50 | p99 | read 1 MiB, p50 |\n|---|---|---|---|---|---|")
	for _, way := range ways {
		for _, s := range []timing.Samples{way.starts, way.calls, way.reads} {
			slices.Sort(s)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", way.name, timing.Text(way.starts.At(50)), timing.Text(way.starts.At(95)),
			timing.Text(way.calls.At(50)), timing.Text(way.calls.At(99)), timing.Text(way.reads.At(50)))
	}
	return nil
}

// measure makes one start, and some calls on what it started.
func (g *guarding) measure(ctx context.Context, path, dir string) (err error) {
	began := time.Now()
	client, stop, err := g.start(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := client.Describe(ctx, &berthv1.DescribeRequest{}); err != nil {
		return err
	}
	g.starts = append(g.starts, time.Since(began))

	key, err := fileOf1MiB(ctx, client, dir)
	if err != nil {
		return err
	}
	const calls, reads = 100, 10
	s, err := measure(calls, plain(func() error {
		_, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key, Path: []byte("/f")})
		return err
	}))
	if err != nil {
		return err
	}
	g.calls = append(g.calls, s...)
	s, err = measure(reads, plain(func() error {
		stream, err := client.ReadFile(ctx, &berthv1.ReadFileRequest{Workspace: key, Path: []byte("/f")})
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}))
	g.reads = append(g.reads, s...)
	return err
}

// start starts the plugin as go-plugin's documentation does, with what guards its
// socket.
func (g *guarding) start(path string) (_ berthv1.ProviderClient, stop func() error, err error) {
	config := &plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {}},
		Cmd:              exec.Command(path), //nolint:noctx // go-plugin ends it
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         g.mtls,
		Logger:           hclog.NewNullLogger(),
		GRPCDialOptions:  wire.DialOptions(),
	}
	var folder string
	var addr atomic.Pointer[string]
	if g.peer {
		if folder, err = os.MkdirTemp("", "b"); err != nil {
			return nil, nil, err
		}
		config.UnixSocketConfig = &plugin.UnixSocketConfig{TempDir: folder}
		config.GRPCDialOptions = append(config.GRPCDialOptions, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", *addr.Load())
			if err != nil {
				return nil, err
			}
			if err := wire.CheckPeer(conn, os.Geteuid()); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return conn, nil
		}))
	}
	client := plugin.NewClient(config)
	stop = func() error {
		client.Kill()
		if folder != "" {
			return os.RemoveAll(folder)
		}
		return nil
	}
	listens, err := client.Start()
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	socket := listens.String()
	addr.Store(&socket)
	protocol, err := client.Client()
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return berthv1.NewProviderClient(protocol.(*plugin.GRPCClient).Conn), stop, nil
}

// fileOf1MiB makes a workspace that holds one, /f.
func fileOf1MiB(ctx context.Context, client berthv1.ProviderClient, dir string) (*berthv1.WorkspaceKey, error) {
	if _, err := client.Configure(ctx, &berthv1.ConfigureRequest{Provider: "tls", Config: []byte("{}"), DataDir: []byte(filepath.Join(dir, "tls"))}); err != nil {
		return nil, err
	}
	stream, err := client.Create(ctx, &berthv1.CreateRequest{Token: workspace.NewToken(), Name: "tls"})
	if err != nil {
		return nil, err
	}
	var opened *berthv1.Opened
	for opened == nil {
		msg, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		opened = msg.GetOpened()
	}
	key := &berthv1.WorkspaceKey{Id: opened.GetId(), Incarnation: opened.GetIncarnation()}
	upload, err := client.WriteFile(ctx)
	if err != nil {
		return nil, err
	}
	const size = 1 << 20
	err = upload.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: key, Path: []byte("/f")}}})
	for sent := 0; err == nil && sent < size; sent += wire.ChunkSize {
		err = upload.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: make([]byte, wire.ChunkSize)}})
	}
	if err == nil {
		err = upload.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: size}})
	}
	if err != nil && !errors.Is(err, io.EOF) { // which means that the answer says more
		return nil, err
	}
	_, err = upload.CloseAndRecv()
	return key, err
}
