//go:build unix

package gateway

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// saidLog keeps what is logged.
type saidLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *saidLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count is how often something was said.
func (l *saidLog) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// A certificate that is replaced is served from then on, and the old one until both of
// its files fit.
func TestCertificateIsReplaced(t *testing.T) {
	files, _ := certificate(t)
	log := &saidLog{}
	config, err := files.load(hclog.New(&hclog.LoggerOptions{Output: log}))
	if err != nil {
		t.Fatal(err)
	}
	served := func() string {
		t.Helper()
		pair, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(pair.Certificate[0])
	}
	old := served()
	replace := func(with *TLS) {
		t.Helper()
		if err := os.Rename(with.Cert, files.Cert); err != nil {
			t.Fatal(err)
		}
		if served() != old {
			t.Error("a certificate is served that does not fit its key")
		}
		if err := os.Rename(with.Key, files.Key); err != nil {
			t.Fatal(err)
		}
	}
	next, _ := certificate(t)
	replace(next)
	if now := served(); now == old {
		t.Error("the old certificate is still served")
	} else {
		old = now
	}
	if n := log.count("the old one is still served"); n != 1 {
		t.Errorf("half a replacement was told of %d times", n)
	}

	// What is no certificate, and then is none at all, leaves it too, and is told once.
	if err := os.WriteFile(files.Cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if served() != old {
			t.Error("another certificate is served")
		}
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if served() != old {
			t.Error("another certificate is served")
		}
	}
	if n := log.count("the old one is still served"); n != 3 {
		t.Errorf("three faults were told of %d times", n)
	}
}
