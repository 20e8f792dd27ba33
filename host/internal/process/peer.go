package process

import (
	"net"
	"os"

	"github.com/berth-dev/berth/shared/wire"
)

// checkPeer refuses a socket on which another user's process listens.
func checkPeer(conn net.Conn) error { return wire.CheckPeer(conn, os.Geteuid()) }
