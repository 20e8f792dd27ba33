package process

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// checkPeer refuses a socket on which another user's process listens. The
// folder's mode keeps others out already; this holds when it was changed.
func checkPeer(conn net.Conn) error { return checkPeerUID(conn, os.Geteuid()) }

func checkPeerUID(conn net.Conn, uid int) error {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("plugin listens on %s, want a unix socket", conn.RemoteAddr().Network())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("credentials of the plugin's socket: %w", credErr)
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("plugin's socket belongs to uid %d, not to this process's %d", cred.Uid, uid)
	}
	return nil
}
