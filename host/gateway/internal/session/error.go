package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// Kind says what kind of answer an [Error] is.
type Kind string

// The kinds.
const (
	NotFound        Kind = "not-found"         // no such session: closed, purged, or never there
	Exists          Kind = "exists"            // opened without reuse or attach
	Opening         Kind = "opening"           // somebody is making, waking, closing or purging it: ask again
	OtherRuntime    Kind = "other-runtime"     // it has another runtime than the one asked for
	UnknownRuntime  Kind = "unknown-runtime"   // no such alias
	NothingToAttach Kind = "nothing-to-attach" // attach to what is not there, or is gone
	NeedsID         Kind = "needs-id"          // attach without an id
	Ceiling         Kind = "ceiling"           // too many sessions, of all or of a tenant
	Unauthorized    Kind = "unauthorized"      // no token, or a wrong one
	Invalid         Kind = "invalid"           // an id, a tenant or a policy that cannot be
	Gone            Kind = "gone"              // its workspace is gone, or was closed during the call
	Failed          Kind = "failed"            // its workspace could not be made
	Transient       Kind = "transient"         // try again: nothing was carried out
	RunExists       Kind = "run-exists"        // a run of that id is going
)

// Error is an answer that a client decides on. Text is for the client: it holds
// nothing secret.
type Error struct {
	Kind Kind
	Text string
	Err  error // the cause, if there is one
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func errNotFound(id string) *Error {
	return &Error{Kind: NotFound, Text: "No such session: " + id}
}

func errOpening(id string) *Error {
	return &Error{Kind: Opening, Text: "Session is opening: " + id}
}

func errNothing(id string) *Error {
	return &Error{Kind: NothingToAttach, Text: "Nothing to attach to: " + id}
}

func errShutdown() *Error {
	return &Error{Kind: Transient, Text: "the gateway is shutting down"}
}

func errGone(id string, err error) *Error {
	return &Error{Kind: Gone, Text: fmt.Sprintf("the workspace of session %s is gone: %v", id, err), Err: err}
}

// errClosed is what a call gets under which its session was closed.
func errClosed(id string) *Error {
	return &Error{Kind: Gone, Text: fmt.Sprintf("session %s was closed during the call", id), Err: workspace.ErrUnavailable}
}

// storeError makes a fault of the store one that a client may try again. What is
// decided on passes as it is.
func storeError(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return &Error{Kind: Transient, Text: "the session store does not answer; try again", Err: err}
}

// workspaceError is a fault of the host's while a workspace was made or started.
func workspaceError(doing, id string, err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	kind := Failed
	var plugin *workspace.PluginError
	if errors.Is(err, workspace.ErrTransient) || errors.As(err, &plugin) && plugin.Temporary() || ended(err) {
		kind = Transient
	}
	return &Error{Kind: kind, Text: fmt.Sprintf("%s session %s: %v", doing, id, err), Err: err}
}

// ended reports whether a call ended with its context.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// conflict reports whether a record was changed by another one, so that it is to be
// read again.
func conflict(err error) bool {
	return errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrExists)
}
