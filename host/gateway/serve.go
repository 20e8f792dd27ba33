package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What a connection may cost before it has said who it is.
const (
	// headerTimeout is for a request's header, which is a packet or two.
	headerTimeout = 10 * time.Second
	// idleTimeout is between two requests of a connection: longer than an agent
	// thinks, so that its next command need not shake hands.
	idleTimeout = 5 * time.Minute
	// maxHeader is far more than a token and a path need.
	maxHeader = 64 << 10
	// tellTimeout is how long requests that are cut have to stop their commands
	// (contract C5) and tell their clients, which take what they are sent.
	tellTimeout = 5 * time.Second
	// cutTimeout is how long requests that were cut have to return: longer than
	// stopping a command takes (contract C5).
	cutTimeout = 10 * time.Second
)

// socketMode lets the user in whom the gateway runs as, and nobody else.
const socketMode = 0o600

// Listen opens what the configuration says. A unix socket that nobody listens at
// any more is replaced.
func (g *Gateway) Listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	path, ok := strings.CutPrefix(g.config.Listen, "unix:")
	if !ok {
		l, err := config.Listen(ctx, "tcp", g.config.Listen)
		if err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
		return l, nil
	}
	l, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("gateway: removing the socket of a gateway that has ended: %w", err)
		}
		l, err = config.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		l.Close()
		return nil, fmt.Errorf("gateway: closing the socket to others: %w", err)
	}
	return l, nil
}

// abandoned says whether a path is a socket at which nobody listens.
func abandoned(ctx context.Context, path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// URL is where clients find the gateway that listens at l.
func (g *Gateway) URL(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	if g.tls != nil {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// Exposed says whether tokens, and all that is in workspaces, travel from this
// machine in clear.
func (g *Gateway) Exposed(l net.Listener) bool {
	addr, ok := l.Addr().(*net.TCPAddr)
	return ok && g.tls == nil && !addr.IP.IsLoopback()
}

// Serve answers what comes in at l until ctx ends. Then it takes no more, waits for
// what is in flight, for the configuration's DrainTimeout at most, and cuts the
// rest: their commands are stopped, and their clients told. It closes l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	server := &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		TLSConfig:   g.tls,
		Handler:     g.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// What it tells there is of clients that fail in shaking hands.
		ErrorLog: g.logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() {
		if g.tls != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	var err error
	select {
	case err = <-served: // the listener failed
		err = fmt.Errorf("gateway: %w", err)
	case <-ctx.Done():
	}
	g.beginDrain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.config.DrainTimeout)
	defer cancel()
	if server.Shutdown(drain) != nil {
		g.logger.Warn("requests cut off", "after", g.config.DrainTimeout)
		cut(errShutdown)
		tell, told := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
		defer told()
		if server.Shutdown(tell) != nil {
			_ = server.Close()
		}
	}
	if err == nil {
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = fmt.Errorf("gateway: %w", end)
		}
	}
	wait, done := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	defer done()
	if g.answering.wait(wait) != nil {
		err = errors.Join(err, errors.New("gateway: requests that were cut off have not ended"))
	}
	return err
}
