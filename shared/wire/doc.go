// Package wire is what a host and a plugin agree on: the protocol berth.v1
// (package berthv1), the handshake of github.com/hashicorp/go-plugin, the sizes
// that both keep, and how errors and file attributes cross.
//
// Authors of providers in Go use plugin/sdk and embedders use host; neither
// meets this package. It is for those who write a plugin host or an SDK.
package wire
