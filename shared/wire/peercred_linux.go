package wire

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// CheckPeer refuses a connection whose other end was made by a process of another
// user than uid. The mode of the socket's folder keeps others out already; this
// holds when it was changed.
func CheckPeer(conn net.Conn, uid int) error {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("connection over %s, want a unix socket", conn.LocalAddr().Network())
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
		return fmt.Errorf("credentials of the socket's other end: %w", credErr)
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("the socket's other end belongs to uid %d, not to this process's %d", cred.Uid, uid)
	}
	return nil
}
