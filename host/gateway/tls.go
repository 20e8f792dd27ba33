package gateway

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// servedPair is a certificate and its key, which may be replaced while they are
// served.
type servedPair struct {
	files  TLS
	logger hclog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	seen   [2]fs.FileInfo // of the last try to load them
}

// load reads the certificate and its key, and makes a configuration that reads them
// again when their files have changed.
func (t *TLS) load(logger hclog.Logger) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &servedPair{files: *t, logger: logger}
	// Before they are read: what changes meanwhile is read again.
	if seen, err := c.look(); err == nil {
		c.seen = seen
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("gateway: loading the certificate: %w", err)
	}
	c.loaded = &pair
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}, nil
}

// get is the certificate for the next connection. One that cannot be read, or does
// not fit its key, as while only one of the two has been replaced, leaves the old one.
func (c *servedPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.look()
	if err == nil && same(now[0], c.seen[0]) && same(now[1], c.seen[1]) {
		return c.loaded, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.files.Cert, c.files.Key); err == nil {
			c.loaded = &pair
			c.logger.Info("certificate loaded anew", "file", c.files.Cert)
		}
	}
	if err != nil && (now != c.seen || c.seen != [2]fs.FileInfo{}) { // once, not at every connection
		c.logger.Error("loading the new certificate; the old one is still served", "error", err)
	}
	c.seen = now
	return c.loaded, nil
}

// look tells the files as they are now.
func (c *servedPair) look() (now [2]fs.FileInfo, err error) {
	for i, file := range []string{c.files.Cert, c.files.Key} {
		if now[i], err = os.Stat(file); err != nil {
			return [2]fs.FileInfo{}, err
		}
	}
	return now, nil
}

// same says whether a file has not been written or replaced.
func same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
