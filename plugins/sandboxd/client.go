package sandboxd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// tokenHeader carries the service's token or a session's own.
	tokenHeader = "X-Sandbox-Token"
	// dialTimeout is for a connection and its TLS: a service that is there accepts in
	// milliseconds, one that is far away within a second.
	dialTimeout = 10 * time.Second
	// idleConnTimeout keeps connections for the next command, and gives them up before
	// the service does, whose web server waits five seconds: a request that is sent as
	// the other end closes is lost, and must not be sent again.
	idleConnTimeout = 3 * time.Second
	// maxIdleConns is how many commands may run at once without a connection of their
	// own to be made.
	maxIdleConns = 64
	// maxAnswer bounds an answer: both streams of a command have 10 MiB at most, and a
	// byte of them takes six in JSON at worst.
	maxAnswer = 64 << 20
	// maxDetail bounds what is quoted of an error's text.
	maxDetail = 512
)

// client speaks to one service.
type client struct {
	base    *url.URL
	token   string
	timeout time.Duration // for a request that need only be answered
	http    *http.Client
}

func newClient(base *url.URL, token, caFile string, timeout time.Duration) (*client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     idleConnTimeout,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("config key ca_file: %w (%w)", err, workspace.ErrInvalid)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("config key ca_file: %s holds no certificate in PEM: %w", caFile, workspace.ErrInvalid)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &client{
		base: base, token: token, timeout: timeout,
		http: &http.Client{
			Transport: transport,
			// The token is for this service: it follows no redirect.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// request is one call of the service.
type request struct {
	doing   string // for errors, such as "running a command"
	method  string
	path    []string // segments, not escaped
	query   url.Values
	token   string // the service's if empty
	session string // which it is about, if that is not in the path
	body    []byte
	raw     bool // the body is bytes, not JSON
	timeout time.Duration
	most    int64 // how long the answer may be; maxAnswer if zero
}

// about is the session that the request is about, if any.
func (r request) about() string {
	if r.session == "" && len(r.path) > 1 && r.path[0] == "sessions" {
		return r.path[1]
	}
	return r.session
}

// answer is what the service said with a status of 2xx.
type answer struct {
	status int
	kind   string // its media type
	body   []byte
}

// do sends a request and reads the whole answer. Any status but 2xx is a
// *statusError; no answer is [workspace.ErrTransient].
func (c *client) do(ctx context.Context, r request) (answer, error) {
	timeout := r.timeout
	if timeout == 0 {
		timeout = c.timeout
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	target := c.base.JoinPath(r.path...)
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(within, r.method, target.String(), bytes.NewReader(r.body))
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", r.doing, err)
	}
	token := r.token
	if token == "" {
		token = c.token
	}
	req.Header.Set(tokenHeader, token)
	req.Header.Set("Accept", "application/json, application/octet-stream")
	switch {
	case r.raw:
		req.Header.Set("Content-Type", "application/octet-stream")
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, c.unanswered(ctx, r.doing, timeout, err)
	}
	defer resp.Body.Close()
	most := r.most
	if most == 0 {
		most = maxAnswer
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return answer{}, c.unanswered(ctx, r.doing, timeout, err)
	case int64(len(body)) > most:
		return answer{}, fmt.Errorf("%s: the service at %s answers more than %d bytes", r.doing, c.base, most)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // empty if it cannot be read
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		failed := newStatusError(r.doing, c.base.String(), resp.StatusCode, kind, body)
		failed.session = r.about()
		if to, err := resp.Location(); err == nil { // of a redirect: its path and query may hold anything
			failed.message = fmt.Sprintf("it leads to %s://%s", to.Scheme, to.Host)
		}
		return answer{}, failed
	}
	return answer{status: resp.StatusCode, kind: kind, body: body}, nil
}

// unanswered is a request without an answer: whether it was carried out is not known.
func (c *client) unanswered(ctx context.Context, doing string, timeout time.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// Not that error itself: the caller's deadline has not passed.
		return fmt.Errorf("%s: the service at %s has not answered within %v: %w", doing, c.base, timeout.Round(time.Millisecond), workspace.ErrTransient)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return fmt.Errorf("%s: the certificate of the service at %s: %w (config key ca_file): %w", doing, c.base, certificate.Err, workspace.ErrInvalid)
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // the URL is told already
	}
	return fmt.Errorf("%s: no answer of the service at %s: %w: %w", doing, c.base, err, workspace.ErrTransient)
}

// json sends in as JSON and reads the answer into out. Where nothing is to come, nothing
// else may: what stands before the service may answer anything with success.
func (c *client) json(ctx context.Context, r request, in, out any) error {
	if in != nil {
		body, err := marshal(in)
		if err != nil {
			return fmt.Errorf("%s: %w", r.doing, err)
		}
		r.body = body
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	if out == nil {
		err = a.nothing()
	} else {
		err = a.decode(out)
	}
	if err != nil {
		return c.nonsense(r.doing, err)
	}
	return nil
}

// nothing checks that the service says no more than that it is done.
func (a answer) nothing() error {
	if a.status != http.StatusNoContent {
		return fmt.Errorf("%d with content of type %q instead of %d (is service_url right?)", a.status, a.kind, http.StatusNoContent)
	}
	return nil
}

// decode reads an answer that is to be JSON.
func (a answer) decode(out any) error {
	if a.kind != "application/json" {
		return fmt.Errorf("content of type %q instead of JSON (is service_url right?)", a.kind)
	}
	return json.Unmarshal(a.body, out)
}

// marshal is JSON that does not write three characters for a < in a command.
func marshal(in any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(in)
	return b.Bytes(), err
}

// nonsense is an answer that the service does not give: something else may be there.
func (c *client) nonsense(doing string, err error) error {
	return fmt.Errorf("%s: the service at %s answers what is not its protocol: %w", doing, c.base, err)
}

// short makes a text of the service's fit an error: one line, of a bounded length.
func short(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + " …"
	}
	return text
}
