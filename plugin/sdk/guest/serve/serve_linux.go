package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/guestv1"
)

const (
	// pingAfter is how long a connection may be silent before the guest asks
	// whether anybody is there, and pingWait how long it waits for the answer.
	// Together 15 s: a client that is gone without a word, behind an exec stream
	// that stays open, holds nothing for longer.
	pingAfter = 10 * time.Second
	pingWait  = 5 * time.Second
	// minPing is how often a client may ask, at most: half of what ours does.
	minPing = 5 * time.Second
	// prefaceWait is how long a new connection may take to begin to speak HTTP/2.
	prefaceWait = 10 * time.Second
	// maxConnections is how many clients are served at once: one for each plugin
	// process, and those of a version that is being replaced.
	maxConnections = 64
	// maxStreams is how many calls one connection carries at once. Each command
	// that runs is one, and containers have fewer processes.
	maxStreams = 1024
	// flushWait is for answers that are given but not yet sent, at the end.
	flushWait = 250 * time.Millisecond
	// newDirMode is that of a working directory that has to be made.
	newDirMode = 0o755
)

// Config says what to serve, and where.
type Config struct {
	// Dir is the working directory. It is made if it is not there, and missed by
	// commands alone where it cannot be: a workspace whose folder was deleted must
	// still start again.
	Dir string
	// Socket is the path of the unix socket. Its folder is made, with mode 0700,
	// if it is not there, and refused if others can write to it.
	Socket string
	// Env is the complete environment of the commands, to which a command adds
	// its own.
	Env map[string]string
	// Version is for people.
	Version string
	// Logger is for what no client is told. Nil is nothing.
	Logger hclog.Logger
}

// Run serves until ctx ends, which stops the commands that still run, and returns
// nil then. Another guest on the same socket is [ErrServed].
func Run(ctx context.Context, config Config) (err error) {
	logger := config.Logger
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	socket, err := listen(ctx, config.Socket, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, socket.close()) }()
	ws, err := open(config, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	hello, err := newHello(config.Version, ws.WorkingDir())
	if err != nil {
		return err
	}
	defer hello.wait()
	calls, err := newCalls(ctx, config.Version, ws, logger)
	if err != nil {
		return err
	}
	defer calls.close()

	server := grpc.NewServer(serverOptions()...)
	calls.register(server)
	guestv1.RegisterGuestServer(server, hello)
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	keeping, stopKeeping := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { socket.keep(keeping) })
	defer kept.Wait()
	defer stopKeeping()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", config.Socket, err)
	case <-ctx.Done():
	}
	calls.close() // stops the commands, whose ends can still be told
	stop(server)
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving %s: %w", config.Socket, err)
	}
	return nil
}

// stop ends the server when its answers are out, or a little later.
func stop(server *grpc.Server) {
	timer := time.AfterFunc(flushWait, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

func serverOptions() []grpc.ServerOption {
	return append(wire.ServerOptions(),
		grpc.Creds(newInputs()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(prefaceWait),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
}

// open opens the machine as a workspace.
func open(config Config, logger hclog.Logger) (*posix.Workspace, error) {
	// A working directory that is not there and cannot be made is told to those who
	// need it: everything else of the workspace can still be reached.
	if err := os.MkdirAll(config.Dir, newDirMode); err != nil {
		logger.Warn("making the working directory", "error", err)
	}
	ws, err := posix.Open(posix.Config{
		Dir: config.Dir, WholeMachine: true, ID: WorkspaceID, Env: config.Env,
		// That the workspace is still the same one is for the provider to know, who
		// knows the container.
		Incarnation: WorkspaceID,
	})
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	return ws, nil
}
