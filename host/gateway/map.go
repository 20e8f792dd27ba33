package gateway

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

// retryAfter is what a client is told of a passing fault: about as long as a
// plugin takes to start again.
const retryAfter = time.Second

// maxText is as much of an error's text as an answer holds.
const maxText = 4 << 10

// statuses are those of what the sessions' manager refuses.
var statuses = map[session.Kind]int{
	session.NotFound:        http.StatusNotFound,
	session.NothingToAttach: http.StatusNotFound,
	session.Exists:          http.StatusConflict,
	session.Opening:         http.StatusConflict,
	session.OtherRuntime:    http.StatusConflict,
	session.RunExists:       http.StatusConflict,
	session.UnknownRuntime:  http.StatusBadRequest,
	session.NeedsID:         http.StatusBadRequest,
	session.Ceiling:         http.StatusTooManyRequests,
	session.Unauthorized:    http.StatusUnauthorized,
	session.Gone:            http.StatusGone,
	session.Failed:          http.StatusBadGateway,
	session.Transient:       http.StatusServiceUnavailable,
}

// mapError turns any error of a handler into an answer. One that is an answer
// already is left alone; one that nobody foresaw is a 500 whose text stays in the
// log.
func mapError(err error) error {
	var wire *wireError
	var refused *session.Error
	var path *fs.PathError
	var plugin *workspace.PluginError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wire):
		return err
	case errors.As(err, &refused) && refused.Kind == session.Invalid:
		return errInvalid("value_error", plain(refused.Text), nil, "body")
	case errors.As(err, &refused) && statuses[refused.Kind] != 0:
		wire = errText(statuses[refused.Kind], plain(refused.Text))
		wire.cause = refused.Err
	case errors.Is(err, workspace.ErrUnavailable):
		wire = errCause(http.StatusGone, err)
	case errors.As(err, &plugin) && plugin.MayHaveExecuted:
		wire = errCause(http.StatusBadGateway, err)
	case errors.As(err, &plugin), errors.Is(err, workspace.ErrTransient):
		wire = errCause(http.StatusServiceUnavailable, err)
	case errors.As(err, &path):
		return mapPathError(path)
	case errors.Is(err, errors.ErrUnsupported):
		wire = errCause(http.StatusNotImplemented, err)
	case errors.Is(err, workspace.ErrInvalid):
		wire = errCause(http.StatusBadRequest, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		wire = errText(http.StatusServiceUnavailable, "the request was cut off")
		wire.cause = err
	default:
		return &wireError{status: http.StatusInternalServerError, cause: err}
	}
	if wire.status == http.StatusServiceUnavailable {
		wire.retryAfter = retryAfter
	}
	return wire
}

// cutOff is what a call that the gateway's end has cut tells, if that is its error:
// unlike a passing fault, it may have been carried out.
func cutOff(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	wire := errText(http.StatusBadGateway, "the gateway ended during the call, which may have been carried out")
	wire.cause = err
	return wire
}

// errCause tells an error by its own text.
func errCause(status int, err error) *wireError {
	return &wireError{status: status, detail: plain(err.Error()), cause: err}
}

// pathErrors are what Python calls the errors of files, the first that fits.
var pathErrors = []struct {
	is     error
	status int
	class  string
}{
	{syscall.ENOTDIR, http.StatusBadRequest, "NotADirectoryError"}, // before ErrNotExist, which some systems count it to
	{syscall.EISDIR, http.StatusBadRequest, "IsADirectoryError"},
	{fs.ErrNotExist, http.StatusNotFound, "FileNotFoundError"},
	{syscall.ENOTEMPTY, http.StatusBadRequest, "OSError"}, // before ErrExist, which it is one of
	{fs.ErrExist, http.StatusBadRequest, "FileExistsError"},
	{fs.ErrPermission, http.StatusBadRequest, "PermissionError"},
	{workspace.ErrInvalid, http.StatusBadRequest, "ValueError"},
	{fs.ErrInvalid, http.StatusBadRequest, "ValueError"},
}

// mapPathError turns an error about a path into the wire's.
func mapPathError(err *fs.PathError) *wireError {
	message := plain(err.Path + ": " + err.Err.Error())
	for _, known := range pathErrors {
		if errors.Is(err, known.is) {
			return errFile(known.status, known.class, message)
		}
	}
	return errFile(http.StatusBadRequest, "OSError", message)
}

// plain makes a text that JSON can say, and that is not too long.
func plain(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
