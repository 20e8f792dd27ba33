package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// terminateWait is how long calls under way have, after a SIGTERM, to come to
	// their end by themselves.
	terminateWait = 3 * time.Second
	// lifelineWait ends the process whatever hangs: contract B4 gives two
	// seconds from the host's end, on a busy machine too.
	lifelineWait = 1200 * time.Millisecond
	// flushWait is for answers that are given but not yet sent.
	flushWait = 250 * time.Millisecond
	// stopServingWait is for go-plugin's own end, which removes the socket.
	stopServingWait = time.Second
)

// Exit statuses of a plugin.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Serve is the main function of a plugin: it serves p to the host that started
// this process, and never returns. It ends when the host says so, at SIGTERM, and
// within two seconds when the host is gone (contract B4). Standard output belongs
// to the host from here on: what is printed there goes to stderr, which is the
// host's log.
//
// Started by hand it says what it is; --version and --schema print just that.
func Serve[C any](p Plugin[C]) {
	os.Exit(serve(p.definition()))
}

func serve(def definition) (status int) {
	handshake := wire.Handshake()
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		return byHand(def, os.Args[1:], os.Stdout, os.Stderr)
	}
	redactor := &redactor{}
	log := os.Stderr
	newLogger := func(level hclog.Level) hclog.Logger {
		return hclog.New(&hclog.LoggerOptions{Level: level, Output: redactor.writer(log), JSONFormat: true})
	}
	logger := newLogger(hclog.Debug)
	if err := claimStdout(); err != nil {
		logger.Error("keeping stdout clean", "error", err)
		return exitFailed
	}
	// Ctrl-C reaches the whole group, and is the host's to answer. It is caught,
	// not ignored: children would inherit that.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	hostGone := make(chan struct{})
	if err := takeBudget(); err != nil { // it serves without
		logger.Warn("the host's budget for this process", "error", err)
	}
	err := holdLifeline(func() {
		time.AfterFunc(lifelineWait, func() { os.Exit(exitFailed) })
		close(hostGone)
	})
	if err != nil {
		logger.Error("holding the lifeline to the host", "error", err)
		return exitFailed
	}

	def.setEnvironment = func(vars map[string]string) error { return setEnvironment(def.environment, vars) }
	def.setLogLevel = logger.SetLevel
	exporter := recordTraces(def, redactor, logger)
	defer flushTraces(exporter, logger)
	s := newServer(def, logger, redactor)
	p := &goPlugin{server: s, log: log, tracing: tracing.ServerOption(exporter.Provider())}
	served := make(chan struct{})
	go func() {
		defer close(served)
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  handshake,
			VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {wire.PluginName: p}},
			GRPCServer:       p.newGRPCServer,
			Logger:           newLogger(hclog.Warn),
		})
	}()
	for {
		select {
		case <-served: // the host's Shutdown; or it never began, which is in the log
			s.close()
			if p.grpcServer() == nil {
				return exitFailed
			}
			return 0
		case <-hostGone:
			s.close()
		case sig := <-signals:
			if sig == os.Interrupt {
				continue
			}
			s.calls.wait(terminateWait)
			s.close()
		}
		p.stop(served)
		return 0
	}
}

// goPlugin is the plugin as go-plugin wants it.
type goPlugin struct {
	plugin.NetRPCUnsupportedPlugin

	server *server
	log    *os.File
	first  sync.Once
	// tracing makes a span of each call, if that is wanted.
	tracing grpc.ServerOption

	mu   sync.Mutex
	grpc *grpc.Server
}

// GRPCServer registers the service.
func (p *goPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.server.register(s)
	return nil
}

// GRPCClient is for hosts.
func (p *goPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no host")
}

func (p *goPlugin) newGRPCServer(opts []grpc.ServerOption) *grpc.Server {
	opts = append(opts, p.tracing)
	opts = append(opts, wire.ServerOptions()...)
	opts = append(opts, peerOptions(p.server.logger)...)
	opts = append(opts,
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			p.first.Do(p.takeOver)
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			p.first.Do(p.takeOver)
			return handler(srv, stream)
		}),
	)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grpc = grpc.NewServer(opts...)
	return p.grpc
}

func (p *goPlugin) grpcServer() *grpc.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grpc
}

// stop ends the server, which ends go-plugin's Serve. It ends gracefully first:
// a host that reads go-plugin's own streams never lets that finish, but the
// answers are out by then.
func (p *goPlugin) stop(served <-chan struct{}) {
	server := p.grpcServer()
	if server == nil {
		return
	}
	go server.GracefulStop() // ended by Stop
	select {
	case <-served:
		return
	case <-time.After(flushWait):
	}
	server.Stop()
	select {
	case <-served:
	case <-time.After(stopServingWait):
	}
}

// takeOver undoes, before the first call, what go-plugin did to this process
// after its handshake: os.Stdout and os.Stderr are pipes whose bytes travel to
// the host by a stream that blocks the writer when nobody reads it. The host reads
// our stderr itself. The variables of the handshake are nothing for our children.
func (p *goPlugin) takeOver() {
	os.Stdout, os.Stderr = p.log, p.log
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == wire.Handshake().MagicCookieKey || strings.HasPrefix(name, "PLUGIN_") {
			_ = os.Unsetenv(name)
		}
	}
}

// setEnvironment applies conventional variables to this process: those that the
// plugin asked for and no others.
func setEnvironment(patterns []string, vars map[string]string) error {
	if err := workspace.ValidateEnv(vars); err != nil {
		return fmt.Errorf("conventional %w", err)
	}
	for name, value := range vars {
		if !matchesAny(patterns, name) {
			return fmt.Errorf("conventional environment: the plugin does not read %q: %w", name, workspace.ErrInvalid)
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("conventional environment: setting %q: %w", name, err)
		}
	}
	return nil
}

// matchesAny knows exact names, and prefixes with one trailing *.
func matchesAny(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) || pattern == name {
			return true
		}
	}
	return false
}
