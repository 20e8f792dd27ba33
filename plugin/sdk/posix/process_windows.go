package posix

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/plugin/sdk"
)

type commands struct{}

func (commands) open()  {}
func (commands) close() {}

// Start is [errors.ErrUnsupported]: Windows has no process groups to stop.
func (w *Workspace) Start(context.Context, sdk.Command) (sdk.Process, error) {
	return nil, fmt.Errorf("running commands on Windows: %w", errors.ErrUnsupported)
}
