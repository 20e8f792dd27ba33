package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// dialTimeout is how long a host may take to accept a connection: one that
// answers at all does so within a few retries of a lost packet.
const dialTimeout = 15 * time.Second

// endpoint is where an engine is, and how it is reached.
type endpoint struct {
	host string // as configured, such as unix:///var/run/docker.sock
	from string // what says so, for people
	url  string // what stands for it in the client
	tls  *tls.Config

	network, addr, basePath string
	helper                  func(ctx context.Context, network, addr string) (net.Conn, error) // of ssh
}

// invalid says what is wrong with how the engine is configured.
func (ep endpoint) invalid(format string, args ...any) error {
	return fmt.Errorf("docker engine at %s (from %s): %s: %w", ep.host, ep.from, fmt.Sprintf(format, args...), workspace.ErrInvalid)
}

func (ep endpoint) scheme() string {
	if ep.tls != nil {
		return "https"
	}
	return "http"
}

// requestURL is the URL of a path of the API.
func (ep endpoint) requestURL(path string) *url.URL {
	host := ep.addr
	if ep.network != "tcp" {
		host = client.DummyHost // a path is no host
	}
	return &url.URL{Scheme: ep.scheme(), Host: host, Path: ep.basePath + path}
}

// transport returns the connections for ordinary calls. They use no proxy: the
// stream of an exec could not follow them.
func (ep endpoint) transport() *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return ep.dial(ctx) }
	t := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     ep.tls,
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true, // an archive is as large as it says
	}
	if ep.tls != nil {
		t.DialTLSContext = dial
	}
	return t
}

// unreachableError is a connection that could not be made. It hides the kind of
// its cause: a socket that does not exist is no file of a workspace that does
// not exist.
type unreachableError struct {
	reason string
	lasts  bool // until somebody mends it
}

func (e *unreachableError) Error() string { return e.reason }

// dial connects to the engine, with TLS if it has that.
func (ep endpoint) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := ep.dialPlain(ctx)
	if err != nil {
		return nil, ep.unreachable(err)
	}
	if ep.tls == nil {
		return conn, nil
	}
	config := ep.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(ep.addr)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, ep.unreachable(err)
	}
	return secure, nil
}

func (ep endpoint) dialPlain(ctx context.Context) (net.Conn, error) {
	switch {
	case ep.helper != nil:
		conn, err := ep.helper(ctx, "", "")
		if err != nil {
			return nil, err
		}
		return newSSHConn(conn), nil
	case ep.network == "npipe":
		// Only the client has the pipe's dialer on every system.
		c, err := client.NewClientWithOpts(client.WithHost(ep.host))
		if err != nil {
			return nil, err
		}
		return c.Dialer()(ctx)
	}
	return (&net.Dialer{}).DialContext(ctx, ep.network, ep.addr)
}

// unreachable says why there is no connection and, where we know, what to do.
func (ep endpoint) unreachable(err error) error {
	var (
		op       *net.OpError
		record   tls.RecordHeaderError
		verify   *tls.CertificateVerificationError
		dnsError *net.DNSError
	)
	cause := err
	if errors.As(err, &op) {
		cause = op.Err // without the address, which is told already
	}
	fault := &unreachableError{reason: cause.Error()}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		fault.reason = fmt.Sprintf("it has not accepted a connection within %v", dialTimeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		fault.reason = "nothing listens there: start the engine, or set " + envHost + " or " + envContext + " to one that runs"
	case errors.Is(err, syscall.ENOENT):
		fault.reason = "there is no such socket: start the engine, or set " + envHost + " or " + envContext + " to one that runs"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		fault.reason, fault.lasts = "permission denied: "+mayUse(ep.addr), true
	case errors.As(err, &record):
		fault.reason, fault.lasts = "it does not speak TLS: unset "+envTLSVerify+" and "+envCertPath+", or use the engine's TLS port", true
	case errors.As(err, &verify):
		fault.reason, fault.lasts = fmt.Sprintf("its certificate is not trusted: %v (ca.pem has to be of the authority that signed it)", verify.Err), true
	case errors.As(err, &dnsError) && dnsError.IsNotFound:
		fault.reason = fmt.Sprintf("no host is named %s", dnsError.Name)
	}
	return fault
}

// mayUse says who may use a socket.
func mayUse(path string) string {
	group := socketGroup(path)
	if group == "" {
		return "this user may not use the socket; use a rootless engine, or one that this user may reach"
	}
	return fmt.Sprintf("this user has to be in the group %s, which owns the socket (usermod -aG %s USER, and log in again), or use a rootless engine", group, group)
}

// explain returns the reason for a broken connection that only its text tells.
func explain(err error) (reason string, lasts bool) {
	text := err.Error()
	switch {
	case strings.Contains(text, "malformed HTTP response"), strings.Contains(text, "HTTP response to HTTPS client"), strings.Contains(text, "HTTP request to an HTTPS server"):
		return "something other than an engine without TLS answers: if it has TLS, set " + envTLSVerify + "=1 and " + envCertPath, true
	case strings.Contains(text, "bad certificate"), strings.Contains(text, "certificate required"), strings.Contains(text, "unknown certificate"):
		return "it does not accept our certificate: cert.pem and key.pem in " + envCertPath + ", or of the context, have to be signed by an authority that it trusts", true
	}
	return "", false
}
