// Package serve is the guest itself: it serves this machine, seen from one
// folder, as the one workspace of berth.v1, to whoever connects to a unix socket.
// The binary berth-guest runs it inside a container; package guest is its client.
//
// It runs on Linux.
package serve
