package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// Error says what was being done, and puts into err's chain what a caller may
// decide on: [workspace.ErrTransient] for an engine that cannot be reached, does
// not answer or has failed itself, [syscall.ENOSPC] for a full disk. The
// engine's own kinds (errdefs.IsNotFound, IsConflict …) stay in the chain; what a
// missing container means is the caller's to say. Of the caller's own context it
// is the context's error.
func (e *Engine) Error(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case errors.Is(err, workspace.ErrTransient), errors.Is(err, workspace.ErrUnavailable), errors.Is(err, workspace.ErrInvalid):
		return fmt.Errorf("%s: %w", doing, err)
	case strings.Contains(err.Error(), "no space left on device"):
		return fmt.Errorf("%s: %w (%w)", doing, err, syscall.ENOSPC)
	case unreachable(err):
		return fmt.Errorf("%s: docker engine at %s: %w: %w", doing, e.address, err, workspace.ErrTransient)
	case errdefs.IsInternal(err), errdefs.IsUnknown(err), errdefs.IsUnavailable(err), errdefs.IsResourceExhausted(err):
		return fmt.Errorf("%s: %w: %w", doing, err, workspace.ErrTransient)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// unreachable reports whether err is about the way to the engine.
func unreachable(err error) bool {
	var netErr net.Error
	var opErr *net.OpError
	return client.IsErrConnectionFailed(err) || errors.Is(err, errNoAnswer) || errors.As(err, &opErr) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
