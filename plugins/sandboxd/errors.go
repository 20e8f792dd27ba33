package sandboxd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// statusError is an answer of the service that is no success.
type statusError struct {
	doing, service string
	status         int
	session        string // which it was about, if any
	// class and message are those of an error about a file, or of any other the
	// message alone.
	class, message string
	// told says that the reason is in the service's form, not of what may stand before it.
	told bool
}

// isGone reports whether there is no such session, nor what was left of one. A 404 that
// does not name the session is of a route that is not there: something else answers.
func (e *statusError) isGone() bool {
	return e.told && e.class == "" && e.status == http.StatusNotFound && e.session != "" && strings.Contains(e.message, e.session)
}

func newStatusError(doing, service string, status int, kind string, body []byte) *statusError {
	e := &statusError{doing: doing, service: service, status: status}
	if kind != "application/json" {
		e.message = short(string(body))
		return e
	}
	var outer struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &outer) != nil || len(outer.Detail) == 0 {
		e.message = short(string(body))
		return e
	}
	var text string
	var about struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	var fields []struct {
		Location []any  `json:"loc"`
		Message  string `json:"msg"`
	}
	switch {
	case json.Unmarshal(outer.Detail, &text) == nil:
		e.told, e.message = true, short(text)
	case json.Unmarshal(outer.Detail, &about) == nil && about.Error != "":
		e.told, e.class, e.message = true, short(about.Error), short(about.Message)
	case json.Unmarshal(outer.Detail, &fields) == nil && len(fields) > 0:
		// Not its input, which repeats what was sent (contract B7).
		e.message = short(fmt.Sprintf("%v: %s", fields[0].Location, fields[0].Message))
	default:
		e.message = "an answer without a reason"
	}
	return e
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s: the service at %s answers %d %s: %s", e.doing, e.service, e.status, http.StatusText(e.status), e.message)
	switch {
	case e.isGone() || e.class != "":
	case e.status == http.StatusNotFound, e.status == http.StatusMethodNotAllowed, e.status < 400:
		text += " (is service_url right?)"
	}
	return text
}

// Unwrap tells what a caller can decide on.
func (e *statusError) Unwrap() error {
	if e.class != "" {
		return fileErrors[e.class]
	}
	switch {
	case e.isGone(), e.told && e.status == http.StatusGone:
		return workspace.ErrUnavailable
	case e.status == http.StatusNotImplemented:
		return errors.ErrUnsupported
	case e.status == http.StatusTooManyRequests, e.status >= 500:
		return workspace.ErrTransient
	case e.status >= 400:
		return workspace.ErrInvalid
	}
	return nil
}

// fileErrors are the service's names for what can happen to a file.
var fileErrors = map[string]error{
	"FileNotFoundError":  syscall.ENOENT,
	"FileExistsError":    syscall.EEXIST,
	"IsADirectoryError":  syscall.EISDIR,
	"NotADirectoryError": syscall.ENOTDIR,
	"PermissionError":    syscall.EACCES,
	"ValueError":         workspace.ErrInvalid,
}

// isGone reports whether there is no such session, nor anything that was left of one.
func isGone(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.isGone()
}

// isStatus reports whether err is an answer of this status.
func isStatus(err error, status int) bool {
	var e *statusError
	return errors.As(err, &e) && e.status == status
}

// lostSession reports whether the service did not do what it was asked because it
// knows of no such session: it was reaped, or closed, or the service was started
// again. A session's own token is not known then either.
func lostSession(err error) bool {
	var e *statusError
	return errors.As(err, &e) && (e.isGone() || e.told && e.status == http.StatusUnauthorized)
}
