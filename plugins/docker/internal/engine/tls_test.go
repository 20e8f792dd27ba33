package engine

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// pair is a certificate and its key.
type pair struct{ cert, key []byte }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign makes a certificate for this machine as server and client.
func (a *authority) sign(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}

// serveTLS serves on a port to clients whose certificate ca has signed.
func serveTLS(t *testing.T, h http.Handler, ca *authority) (address string) {
	t.Helper()
	own := ca.sign(t)
	certificate, err := tls.X509KeyPair(own.cert, own.key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.TLS.ClientCAs.AddCert(ca.cert)
	server.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil) // handshakes that fail on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

// files writes what Docker's own client reads, and returns the folder.
func files(t *testing.T, ca *authority, own pair) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{"ca.pem": ca.pem, "cert.pem": own.cert, "key.pem": own.key} {
		if content != nil {
			write(t, filepath.Join(dir, name), content)
		}
	}
	return dir
}

func TestAnEngineWithTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	f := newFake()
	f.route("/info", says(http.StatusOK, `{}`))
	f.execs(t, echo)
	address := serveTLS(t, f, ca)
	plain := httptest.NewServer(f)
	t.Cleanup(plain.Close)
	good := files(t, ca, ca.sign(t))
	current := t.TempDir()
	own := ca.sign(t)
	material := map[string][]byte{"ca.pem": ca.pem, "cert.pem": own.cert, "key.pem": own.key}
	writeContext(t, current, "safe", at("tcp://"+address), material)
	writeContext(t, current, "careless", map[string]any{"docker": map[string]any{"Host": "tcp://" + address, "SkipTLSVerify": true}}, map[string][]byte{"ca.pem": stranger.pem, "cert.pem": own.cert, "key.pem": own.key})

	for _, test := range []struct {
		name  string
		env   map[string]string
		texts []string // of the error, none if it works
	}{
		{name: "by variables", env: map[string]string{envHost: "tcp://" + address, envTLSVerify: "1", envCertPath: good}},
		{name: "from the configuration's folder", env: map[string]string{envHost: "tcp://" + address, envTLSVerify: "1", envConfig: good}},
		{name: "unchecked", env: map[string]string{envHost: "tcp://" + address, envCertPath: files(t, stranger, ca.sign(t))}},
		{name: "by a context", env: map[string]string{envConfig: current, envContext: "safe"}},
		{name: "by a context, unchecked", env: map[string]string{envConfig: current, envContext: "careless"}},
		{name: "of a stranger", env: map[string]string{envHost: "tcp://" + address, envTLSVerify: "1", envCertPath: files(t, stranger, ca.sign(t))}, texts: []string{"not trusted", "ca.pem"}},
		{name: "that does not know us", env: map[string]string{envHost: "tcp://" + address, envTLSVerify: "1", envCertPath: files(t, ca, stranger.sign(t))}, texts: []string{"does not accept our certificate", "cert.pem"}},
		{name: "that wants to know us", env: map[string]string{envHost: "tcp://" + address, envTLSVerify: "1", envCertPath: files(t, ca, pair{})}, texts: []string{"does not accept our certificate"}},
		{name: "that we do not expect", env: map[string]string{envHost: "tcp://" + address}, texts: []string{envTLSVerify + "=1"}},
		{name: "that has none", env: map[string]string{envHost: "tcp://" + strings.TrimPrefix(plain.URL, "http://"), envTLSVerify: "1", envCertPath: good}, texts: []string{"does not speak TLS", "unset " + envTLSVerify}},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			e := openHere(t)
			if len(test.texts) > 0 {
				for call, do := range calls {
					err := do(t.Context(), e)
					t.Run(call, func(t *testing.T) {
						wantKinds(t, err, "invalid")
						wantTexts(t, err, append(test.texts, e.Address())...)
					})
				}
				return
			}
			if err := e.Query(t.Context(), "asking", info); err != nil {
				t.Error(err)
			}
			// The input of an exec ends also within TLS, while its output goes on.
			x := startExec(t, e)
			if _, err := x.Write([]byte("hello")); err != nil {
				t.Error(err)
			}
			if err := x.CloseWrite(); err != nil {
				t.Error(err)
			}
			var stdout bytes.Buffer
			if err := x.Copy(&stdout, &stdout); err != nil || stdout.String() != "hello" {
				t.Errorf("an exec: %q, %v", stdout.String(), err)
			}
		})
	}
}
