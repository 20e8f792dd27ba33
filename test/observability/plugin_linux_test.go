package observability_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// The plugins that this binary is, by its name: one as the SDK makes them, and one
// as an older or another SDK would, which knows no traces and no log levels, and
// keeps no secret.
const (
	current = "current"
	older   = "older"
)

// Files whose Stat has a plugin do something else.
const (
	nested = "nested" // calls a service of its own, with a span
	leak   = "leak"   // fails with the token in its error
	speak  = "speak"  // logs a record of each level
)

// TestMain is also the main function of the plugins, when a host starts this binary.
func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(wire.Handshake().MagicCookieKey) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if strings.TrimPrefix(filepath.Base(os.Args[0]), wire.BinaryPrefix) == older {
		serveOlder()
		return
	}
	sdk.Serve(thePlugin(current))
}

type config struct {
	Root  string            `json:"root"`
	Token string            `json:"token,omitempty" berth:"secret"`
	Env   map[string]string `json:"env,omitempty"`
}

func thePlugin(name string) sdk.Plugin[config] {
	return sdk.Plugin[config]{
		Name: name, Version: "1.2.3", Workspace: (*files)(nil),
		New: func(_ context.Context, c config, env sdk.Env) (sdk.Provider, error) {
			return &provider{c, env.Logger}, nil
		},
	}
}

type provider struct {
	config config
	log    hclog.Logger
}

// Create makes the folder of a key, or finds it.
func (p *provider) Create(_ context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	if err := os.MkdirAll(filepath.Join(p.config.Root, req.Key()), 0o700); err != nil {
		return nil, err
	}
	return p.open(req.Key())
}

// Attach opens it, and calls a service for that.
func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("service").Start(ctx, "look")
	defer span.End()
	return p.open(id)
}

func (p *provider) open(id string) (sdk.Workspace, error) {
	ws, err := posix.Open(posix.Config{Dir: filepath.Join(p.config.Root, id), ID: id, Env: map[string]string{"PATH": "/usr/bin:/bin"}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s: %w", id, workspace.ErrUnavailable)
	}
	return &files{ws, p}, err
}

// Destroy removes it.
func (p *provider) Destroy(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(p.config.Root, id))
}

type files struct {
	*posix.Workspace
	p *provider
}

// Stat does what the name asks for.
func (f *files) Stat(ctx context.Context, file string) (workspace.FileInfo, error) {
	token := f.p.config.Token
	switch path.Base(file) {
	case nested:
		_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("service").Start(ctx, "call "+token, trace.WithAttributes(
			attribute.String("url", "https://service/?token="+token), attribute.StringSlice("more", []string{token, "b\xff"}),
			attribute.ByteSlice("bytes", []byte(token))))
		span.AddEvent("sent "+token, trace.WithAttributes(attribute.String("header", token)))
		span.RecordError(errors.New("refused: " + token))
		span.SetStatus(codes.Error, "refused: "+token)
		span.End()
	case leak:
		return workspace.FileInfo{}, fmt.Errorf("asking https://service/?token=%s: %w", token, workspace.ErrTransient)
	case speak:
		for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error} {
			f.p.log.Log(level, "a record of "+level.String(), "token", token)
		}
		fmt.Fprintln(os.Stderr, "spoke with "+token) // no record
		key := f.p.config.Env["KEY"]
		f.p.log.Error(fmt.Sprintf("the service refused %q", key), "url", "https://service/?key="+url.QueryEscape(key))
		fmt.Fprintln(os.Stderr, "the key is\n"+key+"\nand ends here")
	}
	return f.Workspace.Stat(ctx, file)
}

// serveOlder serves a plugin without what the SDK's main function brings.
func serveOlder() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {wire.PluginName: olderPlugin{}}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			opts = append(opts, wire.ServerOptions()...)
			return grpc.NewServer(append(opts, grpc.UnaryInterceptor(careless))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
}

type olderPlugin struct{ plugin.NetRPCUnsupportedPlugin }

// GRPCServer registers the service.
func (olderPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p := thePlugin(older)
	p.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: os.Stderr, JSONFormat: true})
	p.Register(s)
	return nil
}

// GRPCClient is for hosts.
func (olderPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no host")
}

// careless answers errors as a plugin does that keeps no secret: the status holds
// the token, which the environment has for that.
func careless(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, req)
	if err != nil && status.Code(err) == grpccodes.Unavailable {
		return nil, status.Error(grpccodes.FailedPrecondition, "the service refused "+os.Getenv(tokenVariable))
	}
	return answer, err
}

// tokenVariable is for the careless plugin.
const tokenVariable = "BERTH_TEST_TOKEN"
