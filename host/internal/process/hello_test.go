package process

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"
	"testing"
)

func TestReadHello(t *testing.T) {
	tests := []struct{ name, text, line, says string }{
		{name: "go-plugin's", text: "1|1|unix|/run/p|grpc|\n", line: "1|1|unix|/run/p|grpc"},
		{name: "with multiplexing", text: "1|1|unix|/run/p|grpc||true\nmore", line: "1|1|unix|/run/p|grpc"},
		{name: "with CRLF", text: "1|1|unix|/run/p|grpc\r\n", line: "1|1|unix|/run/p|grpc"},
		{name: "without an end", text: "1|1|unix|/run/p|grpc", line: "1|1|unix|/run/p|grpc"},
		{name: "nothing", text: "", says: "no handshake line"},
		{name: "an empty line", text: "\n1|1|unix|/run/p|grpc\n", says: `wrote "" to stdout before the handshake`},
		{name: "a word before it", text: "loading1|1|unix|/run/p|grpc\n", says: `wrote "loading1|1|unix|/run/p|grpc" to stdout`},
		{name: "too few parts", text: "1|1|unix\n", says: `wrote "1|1|unix" to stdout`},
		{name: "another core", text: "2|1|unix|/run/p|grpc\n", says: "speaks version 2 of go-plugin's own protocol, this host version 1"},
		{name: "another protocol", text: "1|7|unix|/run/p|grpc\n", says: "BINARY speaks protocol version 7, this host 1"},
		{name: "a huge version", text: "1|99999999999999999999|unix|/run/p|grpc\n", says: "speaks protocol version 99999999999999999999"},
		{name: "net/rpc", text: "1|1|unix|/run/p|netrpc\n", says: "does not serve gRPC"},
		{name: "old net/rpc", text: "1|1|unix|/run/p\n", says: "does not serve gRPC"},
		{name: "TLS", text: "1|1|unix|/run/p|grpc|" + strings.Repeat("A", 100) + "\n", says: "serves TLS"},
		{name: "endless", text: strings.Repeat("x", 10*maxHello), says: `wrote "` + strings.Repeat("x", maxQuoted) + `"…`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			line, err := readHello(bufio.NewReader(strings.NewReader(test.text)), "BINARY", []int{1})
			if line != test.line || (test.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
}

// What reaches go-plugin is what it can read, whatever a plugin prints.
func FuzzReadHello(f *testing.F) {
	f.Add("1|1|unix|/run/p|grpc|\n")
	f.Add("1|1|unix|/run/p|grpc|||||\n")
	f.Add("||||\n")
	f.Add("\xff|\x00")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := readHello(bufio.NewReader(strings.NewReader(text)), "BINARY", []int{1})
		if err != nil {
			if line != "" || errors.Is(err, errNoHello) && strings.Contains(text, "\n") {
				t.Errorf("%q, %v", line, err)
			}
			return
		}
		if !strings.HasPrefix(line, "1|1|") || !strings.HasSuffix(line, "|grpc") || strings.Count(line, "|") != 4 {
			t.Errorf("%q became %q", text, line)
		}
	})
}

// go-plugin dereferences a nil pointer when a plugin sends a certificate that it
// was not asked for.
func TestCertificateDoesNotCrashTheHost(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, "")
	cfg.Path = file(t, "#!/bin/sh\necho '1|1|unix|/run/p|grpc|"+base64.RawStdEncoding.EncodeToString(cert)+"'\nsleep 60\n", 0o755)
	_, err = Start(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "serves TLS, which was not asked for") {
		t.Errorf("error: %v", err)
	}
}
