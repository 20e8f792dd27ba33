// Package relay is the seam between the SDK's server and a workspace that answers
// berth.v1 itself, such as a container with a guest in it: the server hands the
// calls on such a workspace on, and checks what comes back.
package relay

import (
	"context"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// Target is a workspace that answers berth.v1 itself. It announces all of its
// features: its Go methods tell none.
type Target interface {
	// BerthRelay returns the connection to the workspace, for one call, and
	// connects if need be.
	BerthRelay(ctx context.Context) (*Conn, error)
	// RunRegistry is what the workspace said at the last connection of who notes
	// its runs, nil if it said nothing.
	RunRegistry() []byte
}

// Conn is the connection to a workspace, held for one call.
type Conn struct {
	Client berthv1.ProviderClient
	// Key names the workspace at the other end, in place of the host's own key.
	Key *berthv1.WorkspaceKey
	// Explain says what a broken connection means. Its error wraps
	// workspace.ErrUnavailable, with the reason, if the workspace has gone, and
	// else workspace.ErrTransient. It is called when the call on Client has
	// ended, at most once.
	Explain func(ctx context.Context, err error) error
	// Release ends the use. It is called once, after the call.
	Release func()
}
