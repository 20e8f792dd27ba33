package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// Error says what was being done, and puts into err's chain what a caller may
// decide on: [workspace.ErrTransient] for an engine that cannot be reached, does
// not answer or has failed itself, [workspace.ErrInvalid] for one that is
// configured wrongly or refuses what it was asked as such, [syscall.ENOSPC] for
// a full disk. The engine's own kinds (errdefs.IsNotFound, IsConflict …) stay in
// the chain; what a missing container means is the caller's to say. Of the
// caller's own context it is the context's error.
func (e *Engine) Error(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case errors.Is(err, workspace.ErrTransient), errors.Is(err, workspace.ErrUnavailable), errors.Is(err, workspace.ErrInvalid):
		return fmt.Errorf("%s: %w", doing, err)
	case unreachable(err):
		return e.unreachable(doing, err)
	case diskFull(err):
		return fmt.Errorf("%s: docker engine at %s: %w (%w)", doing, e.Address(), err, syscall.ENOSPC)
	case wrongState(err):
		return fmt.Errorf("%s: %w: %w", doing, err, errdefs.ErrConflict)
	case errdefs.IsInternal(err), errdefs.IsUnknown(err), errdefs.IsUnavailable(err), errdefs.IsResourceExhausted(err), gatewayFault(err):
		return fmt.Errorf("%s: %w: %w", doing, err, workspace.ErrTransient)
	case errdefs.IsInvalidArgument(err):
		return fmt.Errorf("%s: %w: %w", doing, err, workspace.ErrInvalid)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// unreachable says that there is no way to the engine. The cause is told, and
// not kept in the chain: its kind (no such file, permission denied, a deadline)
// is about the way, never about what was asked for.
func (e *Engine) unreachable(doing string, err error) error {
	reason, lasts := explain(err)
	var fault *unreachableError
	if errors.As(err, &fault) {
		reason, lasts = fault.reason, fault.lasts
	}
	if reason == "" {
		reason = err.Error()
	}
	kind := workspace.ErrTransient
	if lasts {
		kind = workspace.ErrInvalid
	}
	return fmt.Errorf("%s: docker engine at %s (from %s): %s: %w", doing, e.Address(), e.endpoint.from, reason, kind)
}

// gatewayFault reports whether err comes from a status that engines do not use,
// and that what stands before them does. The client hides it from all but Is.
func gatewayFault(err error) bool {
	for status := http.StatusBadGateway; status < 600; status++ {
		if errors.Is(err, errhttp.ToNative(status)) {
			return true
		}
	}
	return false
}

// IsAnswer reports whether err is the engine's own answer, rather than about the
// way to it.
func IsAnswer(err error) bool { return err != nil && !unreachable(err) }

// unreachable reports whether err is about the way to the engine.
func unreachable(err error) bool {
	var fault *unreachableError
	var opErr *net.OpError
	return client.IsErrConnectionFailed(err) || errors.Is(err, errNoAnswer) || errors.As(err, &fault) || errors.As(err, &opErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// wrongState reports whether the container is not in the state that a call takes,
// which Docker says by a conflict, and Podman by an internal error.
func wrongState(err error) bool {
	return errdefs.IsInternal(err) && strings.Contains(err.Error(), "container state improper")
}

// diskFull reports whether the engine says that its disk is full: it has no
// status of its own for that.
func diskFull(err error) bool { return strings.Contains(err.Error(), "no space left on device") }
