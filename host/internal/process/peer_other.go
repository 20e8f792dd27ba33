//go:build !linux

package process

import "net"

// checkPeer trusts the folder's mode alone, and on Windows the loopback
// interface, where any user of the machine can connect.
func checkPeer(net.Conn) error { return nil }
