package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// wireError is an answer that is no success. It is what a handler returns as its
// error, and its detail is written as it is.
type wireError struct {
	status int
	// detail is a string, a fileDetail or a list of invalidDetail.
	detail any
	// retryAfter is when it is worth trying again; zero says nothing.
	retryAfter time.Duration
	// cause is what is logged, and never told to the client.
	cause error
}

// textBody is an error that is told in words.
type textBody struct {
	Detail string `json:"detail" doc:"What was wrong, in words"`
}

// fileBody is an error about a path. A client tells it from a session that is not
// there by its detail being an object.
type fileBody struct {
	Detail fileDetail `json:"detail"`
}

// invalidBody is a request that does not have the shape that is asked for.
type invalidBody struct {
	Detail []invalidDetail `json:"detail" nullable:"false" doc:"Each thing that is wrong"`
}

type fileDetail struct {
	Error   string `json:"error" doc:"The kind of error, named as Python names it" enum:"FileNotFoundError,FileExistsError,IsADirectoryError,NotADirectoryError,PermissionError,ValueError,OSError"`
	Message string `json:"message" doc:"What was wrong, in words"`
}

type invalidDetail struct {
	Type  string         `json:"type" doc:"The kind of fault"`
	Loc   []any          `json:"loc" nullable:"false" doc:"Where it is: body, path, query or header, then keys and indexes"`
	Msg   string         `json:"msg" doc:"What is wrong, in words"`
	Input any            `json:"input" doc:"The value, if it is short and no secret"`
	Ctx   map[string]any `json:"ctx,omitempty" doc:"What was asked for"`
}

// Error is what a log says.
func (e *wireError) Error() string {
	text := http.StatusText(e.status)
	switch detail := e.detail.(type) {
	case string:
		text = detail
	case fileDetail:
		text = detail.Error + ": " + detail.Message
	case []invalidDetail:
		if len(detail) > 0 {
			text = detail[0].Msg
		}
	}
	if e.cause != nil && !strings.Contains(text, e.cause.Error()) {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap is the cause.
func (e *wireError) Unwrap() error { return e.cause }

// GetStatus is the answer's.
func (e *wireError) GetStatus() int { return e.status }

// GetHeaders are what the answer has beside its body.
func (e *wireError) GetHeaders() http.Header {
	if e.retryAfter <= 0 {
		return nil
	}
	seconds := max(1, int((e.retryAfter+time.Second-1)/time.Second))
	return http.Header{"Retry-After": {strconv.Itoa(seconds)}}
}

// body is what is written.
func (e *wireError) body() any {
	switch detail := e.detail.(type) {
	case fileDetail:
		return fileBody{detail}
	case []invalidDetail:
		return invalidBody{detail}
	case string:
		return textBody{detail}
	}
	return textBody{http.StatusText(e.status)}
}

// errText is an error in words. On a call about a session a 404 of this kind says
// that there is no such session, and a 409 that the call is not to be had here.
func errText(status int, text string) *wireError {
	return &wireError{status: status, detail: text}
}

// errFile is an error about a path: class is what Python calls it.
func errFile(status int, class, message string) *wireError {
	return &wireError{status: status, detail: fileDetail{class, message}}
}

// errInvalid is a 422. A loc is "body", "path", "query" or "header", then keys and
// indexes.
func errInvalid(kind, msg string, input any, loc ...any) *wireError {
	return &wireError{status: http.StatusUnprocessableEntity, detail: []invalidDetail{{Type: kind, Loc: loc, Msg: msg, Input: input}}}
}
