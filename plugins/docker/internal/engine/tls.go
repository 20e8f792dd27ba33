package engine

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	clicontext "github.com/docker/cli/cli/context"
)

// tlsFromFolder reads ca.pem, cert.pem and key.pem. The engine's certificate is
// checked only if verify says so, as by Docker's own client; then there has to be
// a ca.pem.
func tlsFromFolder(dir string, verify bool) (*tls.Config, error) {
	var data clicontext.TLSData
	for _, file := range []struct {
		name     string
		to       *[]byte
		required bool
	}{{"ca.pem", &data.CA, verify}, {"cert.pem", &data.Cert, false}, {"key.pem", &data.Key, false}} {
		content, err := os.ReadFile(filepath.Join(dir, file.name))
		if errors.Is(err, fs.ErrNotExist) && !file.required {
			continue
		}
		if err != nil {
			return nil, err
		}
		*file.to = content
	}
	return tlsFromData(&data, !verify)
}

// tlsFromData returns what a connection with data is made with. Nil data has no
// certificates.
func tlsFromData(data *clicontext.TLSData, skipVerify bool) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skipVerify}
	if data == nil {
		return c, nil
	}
	if data.CA != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data.CA) {
			return nil, errors.New("ca.pem holds no certificate")
		}
	}
	switch {
	case data.Cert == nil && data.Key == nil:
	case data.Cert == nil:
		return nil, errors.New("there is a key.pem, but no cert.pem")
	case data.Key == nil:
		return nil, errors.New("there is a cert.pem, but no key.pem")
	default:
		certificate, err := tls.X509KeyPair(data.Cert, data.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{certificate}
	}
	return c, nil
}
