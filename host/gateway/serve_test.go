package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// served is a gateway that serves at an address of its own.
type served struct {
	*testGateway
	url    string
	client *http.Client
	stop   context.CancelFunc
	ended  <-chan error
}

// serve has a gateway serve where its configuration says.
func (tg *testGateway) serve() *served {
	tg.t.Helper()
	ctx, stop := context.WithCancel(tg.t.Context())
	l, err := tg.Listen(ctx)
	if err != nil {
		tg.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tg.Serve(ctx, l) }()
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if l.Addr().Network() == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
		}
	}
	s := &served{tg, tg.URL(l), &http.Client{Transport: transport, Timeout: soon}, stop, ended}
	tg.t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
	})
	return s
}

// wait returns what Serve returned.
func (s *served) wait() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(soon):
		s.t.Fatal("Serve does not return")
		return nil
	}
}

// get is the text of an answer.
func (s *served) get(path string) (string, error) {
	url := s.url
	if strings.HasPrefix(url, "unix:") {
		url = "http://gateway"
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url+path, nil)
	if err != nil {
		return "", err
	}
	return s.ask(req)
}

func (s *served) ask(req *http.Request) (string, error) {
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", resp.Proto, " ", strings.TrimSpace(string(body))), err
}

// holding registers an operation that tells when it has begun, and answers when it
// is let go, or that it was cut.
func holding(tg *testGateway) (begun, letGo chan struct{}) {
	begun, letGo = make(chan struct{}), make(chan struct{})
	tg.register(http.MethodGet, "/hold", nil, func(ctx huma.Context) error {
		_, w := humago.Unwrap(ctx)
		close(begun)
		select {
		case <-letGo:
			_, err := io.WriteString(w, "let go")
			return err
		case <-ctx.Context().Done():
			return ctx.Context().Err()
		}
	})
	return begun, letGo
}

type got struct {
	text string
	err  error
}

func (s *served) getLater(path string) <-chan got {
	ch := make(chan got, 1)
	go func() {
		text, err := s.get(path)
		ch <- got{text, err}
	}()
	return ch
}

func anywhere(c *Config) { c.Listen = "127.0.0.1:0" }

func TestServeAnswersWhatIsInFlightWhenItIsToldToEnd(t *testing.T) {
	tg := newTestGateway(t, anywhere, func(c *Config) { c.DrainTimeout = soon })
	begun, letGo := holding(tg)
	s := tg.serve()
	if text, err := s.get("/healthz"); err != nil || !strings.HasPrefix(text, "200 HTTP/1.1 {") {
		t.Fatal(text, err)
	}
	answer := s.getLater("/hold")
	<-begun
	s.stop()
	<-tg.draining
	// Nobody is let in any more, once the listener has closed.
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			break
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("it still listens")
		}
	}
	select {
	case err := <-s.ended:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	close(letGo)
	if a := <-answer; a.err != nil || a.text != "200 HTTP/1.1 let go" {
		t.Error(a.text, a.err)
	}
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}

func TestServeCutsWhatTakesTooLong(t *testing.T) {
	tg := newTestGateway(t, anywhere, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
	begun, _ := holding(tg)
	s := tg.serve()
	answer := s.getLater("/hold")
	<-begun
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	if a := <-answer; a.err == nil {
		t.Error(a.text, a.err)
	}
}

func TestServeTellsOfAListenerThatFails(t *testing.T) {
	tg := newTestGateway(t, anywhere)
	l, err := tg.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := tg.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestServeAtAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	tg := newTestGateway(t, func(c *Config) { c.Listen = "unix:" + path })
	s := tg.serve()
	if s.url != "unix:"+path {
		t.Errorf("at %s", s.url)
	}
	if text, err := s.get("/healthz"); err != nil || !strings.HasPrefix(text, "200 ") {
		t.Error(text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := tg.Listen(t.Context()); err == nil {
		t.Error("two listen at one socket")
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestASocketThatWasLeftIsReplacedAndNothingElseIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	tg := newTestGateway(t, func(c *Config) { c.Listen = "unix:" + path })
	l, err := tg.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := tg.Listen(t.Context()); err == nil {
		l.Close()
		t.Error("it listens at a file")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("%q, %v", data, err)
	}
}

// certificate makes one for this machine, and what trusts it.
func certificate(t *testing.T) (*TLS, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := &TLS{Cert: filepath.Join(t.TempDir(), "c.pem"), Key: filepath.Join(t.TempDir(), "k.pem")}
	for file, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return files, pool
}

func TestServeOverTLS(t *testing.T) {
	files, pool := certificate(t)
	tg := newTestGateway(t, anywhere, func(c *Config) { c.TLS = files })
	s := tg.serve()
	transport := s.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	if text, err := s.get("/healthz"); err != nil || !strings.HasPrefix(text, "200 HTTP/2.0 {") || !strings.HasPrefix(s.url, "https://") {
		t.Error(s.url, text, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/sessions", strings.NewReader(`{"session_id":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(tokenHeader, serviceToken)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	old := &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10} //nolint:gosec // which is to be refused
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), old); err == nil {
		conn.Close()
		t.Error("it speaks TLS 1.1")
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}

func TestAGatewayIsNotMadeWithoutItsCertificate(t *testing.T) {
	_, err := New(t.Context(), Config{
		Host: newFolderHost(t, t.TempDir()), Token: serviceToken, Store: "sqlite:" + filepath.Join(t.TempDir(), "s.db"),
		Runtimes: map[string]Runtime{"folder": {}}, TLS: &TLS{Cert: "/nowhere/c.pem", Key: "/nowhere/k.pem"},
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// addressed is a listener that says it is somewhere.
type addressed struct {
	net.Listener
	addr net.Addr
}

func (a addressed) Addr() net.Addr { return a.addr }

func TestExposed(t *testing.T) {
	tcp := func(ip string) addressed { return addressed{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}} }
	for _, test := range []struct {
		listener addressed
		tls      *tls.Config
		want     bool
	}{
		{tcp("127.0.0.1"), nil, false}, {tcp("127.8.8.8"), nil, false}, {tcp("::1"), nil, false}, {addressed{addr: &net.UnixAddr{Name: "/s", Net: "unix"}}, nil, false},
		{tcp("0.0.0.0"), nil, true}, {tcp("::"), nil, true}, {tcp("10.0.0.1"), nil, true}, {tcp("0.0.0.0"), &tls.Config{MinVersion: tls.VersionTLS13}, false},
	} {
		g := &Gateway{tls: test.tls}
		if got := g.Exposed(test.listener); got != test.want {
			t.Errorf("%v, TLS %v: %v", test.listener.addr, test.tls != nil, got)
		}
	}
}
