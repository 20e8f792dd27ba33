//go:build !linux

package wire

import "net"

// CheckPeer trusts the mode of the socket's folder alone, and on Windows the loopback
// interface, where any user of the machine can connect.
func CheckPeer(net.Conn, int) error { return nil }
