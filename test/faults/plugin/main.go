// This plugin misbehaves as it is told, see package faults.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/test/faults"
)

// how is NAME of the binary berth-provider-NAME.
func how() string {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	return strings.TrimPrefix(name, wire.BinaryPrefix)
}

var _ = func() bool { // as early as an init function
	switch how() {
	case faults.PanicInit:
		panic("no luck at init")
	case faults.PrintFirst:
		fmt.Println("hello from a library")
	}
	return true
}()

func main() {
	switch how() {
	case eater:
		beEater()
	case faults.Slow:
		time.Sleep(3 * time.Second)
	case faults.Silent:
		select {}
	case faults.Exit7:
		fmt.Fprintln(os.Stderr, "cannot find the flux capacitor")
		os.Exit(7)
	case faults.Exit0:
		os.Exit(0)
	case faults.Garbage:
		garbage := make([]byte, 100<<10)
		_, _ = rand.Read(garbage)
		_, _ = os.Stdout.Write(garbage)
	case faults.CloseStdout:
		_ = os.Stdout.Close()
		time.Sleep(time.Hour)
	case faults.LateExit:
		_ = os.Stdout.Close()
		time.Sleep(20 * time.Millisecond)
		os.Exit(9)
	case faults.NoServer, faults.FrozenStart:
		fakeServer(how() == faults.FrozenStart)
	case faults.Elsewhere:
		dir, err := os.MkdirTemp(os.Getenv("HOME"), "e") // the test's folder
		if err != nil {
			panic(err)
		}
		_ = os.Setenv(plugin.EnvUnixSocketDir, dir)
	case faults.Lifeline:
		ignoreParentDeath()
		go awaitLifeline()
	}
	serve()
}

func serve() {
	version := wire.ProtocolV1
	if how() == faults.OtherVersion {
		version = 99
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{version: {wire.PluginName: served{}}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if how() == faults.Nonsense {
				opts = append(opts, grpc.ForceServerCodec(nonsense{}))
			} else {
				opts = append(opts, grpc.ForceServerCodecV2(garbling{encoding.GetCodecV2("proto")}))
			}
			return grpc.NewServer(append(opts, grpc.ChainStreamInterceptor(noteStream))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr, JSONFormat: true}),
	})
}

// served makes the provider known to go-plugin.
type served struct{ plugin.NetRPCUnsupportedPlugin }

func (served) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error { //nolint:unparam // go-plugin's interface
	berthv1.RegisterProviderServer(s, &provider{})
	return nil
}

func (served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// nonsense is a codec whose every message is garbage.
type nonsense struct{}

func (nonsense) Marshal(any) ([]byte, error) { return []byte("\xff\xff\xff\xffnonsense"), nil }
func (nonsense) Unmarshal([]byte, any) error { return nil }
func (nonsense) Name() string                { return "proto" }

// garbling is the usual codec, but for an answer that is to be garbage.
type garbling struct{ encoding.CodecV2 }

func (g garbling) Marshal(v any) (mem.BufferSlice, error) {
	if answer, ok := v.(*berthv1.StatResponse); ok && string(answer.GetInfo().GetName()) == "garbage" {
		garbage, err := nonsense{}.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(garbage)}, err
	}
	return g.CodecV2.Marshal(v)
}

// streams are the methods of all streams that were opened to this plugin.
var streams struct {
	mu      sync.Mutex
	methods []string
}

func noteStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	streams.mu.Lock()
	streams.methods = append(streams.methods, info.FullMethod)
	streams.mu.Unlock()
	return handler(srv, stream)
}

// fakeServer shakes hands and then speaks no HTTP/2.
func fakeServer(freeze bool) {
	path := filepath.Join(os.Getenv(plugin.EnvUnixSocketDir), "plugin1")
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|%d|unix|%s|grpc|\n", wire.ProtocolV1, path)
	if freeze {
		freezeSelf()
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
		_ = conn.Close()
	}
}

// awaitLifeline ends the process when its host is gone.
func awaitLifeline() {
	fd, err := strconv.Atoi(os.Getenv(wire.LifelineEnv))
	if err != nil {
		panic("no lifeline: " + err.Error())
	}
	_, _ = os.NewFile(uintptr(fd), "lifeline").Read(make([]byte, 1))
	os.Exit(3)
}
