package sdk

import (
	"net"
	"os"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-dev/berth/shared/wire"
)

// certEnv is how a host of go-plugin's own kind asks for mutual TLS.
const certEnv = "PLUGIN_CLIENT_CERT"

// peerOptions make a server answer processes of this user alone. Where the host asked
// for mutual TLS, that tells who it is.
func peerOptions(logger hclog.Logger) []grpc.ServerOption {
	if os.Getenv(certEnv) != "" {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(peerCredentials{insecure.NewCredentials(), os.Geteuid(), logger})}
}

// peerCredentials are plain connections, of one user.
type peerCredentials struct {
	credentials.TransportCredentials
	uid    int
	logger hclog.Logger
}

// ServerHandshake looks who has connected before a byte is read.
func (p peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := wire.CheckPeer(conn, p.uid); err != nil {
		p.logger.Warn("a client was refused", "error", err)
		_ = conn.Close()
		return nil, nil, err
	}
	return p.TransportCredentials.ServerHandshake(conn)
}

// Clone keeps what is looked for.
func (p peerCredentials) Clone() credentials.TransportCredentials {
	p.TransportCredentials = p.TransportCredentials.Clone()
	return p
}
