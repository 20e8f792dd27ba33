package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

var errNoDetail = errors.New("unknown error: the other side sent none")

const kindUnsupported = "unsupported"

// kinds are the sentinels that callers decide on, with the status code that
// each is best told by to a peer that does not read our detail. The first one
// that matches gives the code.
var kinds = []struct {
	name string
	err  error
	code codes.Code
}{
	{"invalid", workspace.ErrInvalid, codes.InvalidArgument},
	{"unavailable", workspace.ErrUnavailable, codes.FailedPrecondition},
	{"transient", workspace.ErrTransient, codes.Aborted},
	{"read_only", workspace.ErrReadOnly, codes.PermissionDenied},
	{kindUnsupported, errors.ErrUnsupported, codes.Unimplemented},
	{"not_exist", fs.ErrNotExist, codes.NotFound},
	{"exist", fs.ErrExist, codes.AlreadyExists},
	{"permission", fs.ErrPermission, codes.PermissionDenied},
	{"closed", fs.ErrClosed, codes.FailedPrecondition},
	{"canceled", context.Canceled, codes.Canceled},
	{"deadline_exceeded", context.DeadlineExceeded, codes.DeadlineExceeded},
	{"process_done", os.ErrProcessDone, codes.NotFound},
}

// bare is what a status means that carries no detail of ours: one of gRPC's own
// (a call that the plugin does not know), or of a plugin that sends none. Codes
// that are missing here say nothing about the request: gRPC gives them itself
// when a connection or a deadline ends.
var bare = map[codes.Code]error{
	codes.InvalidArgument:    workspace.ErrInvalid,
	codes.OutOfRange:         workspace.ErrInvalid,
	codes.FailedPrecondition: workspace.ErrUnavailable,
	codes.Aborted:            workspace.ErrTransient,
	codes.NotFound:           fs.ErrNotExist,
	codes.AlreadyExists:      fs.ErrExist,
	codes.PermissionDenied:   fs.ErrPermission,
	codes.Unauthenticated:    fs.ErrPermission,
	codes.Unimplemented:      errors.ErrUnsupported,
}

// ToStatus makes err fit to be returned from a gRPC handler. Nil stays nil, and
// so does what ToStatus made.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok && Detail(err) != nil {
		return err
	}
	detail := ToDetail(err)
	code := codes.Unknown
	for _, k := range kinds {
		if slices.Contains(detail.GetKinds(), k.name) {
			code = k.code
			break
		}
	}
	st, detailErr := status.New(code, statusMessage(detail.GetMessage())).WithDetails(detail)
	if detailErr != nil { // our strings are ASCII, so a detail always marshals
		return status.Error(code, statusMessage(detail.GetMessage()))
	}
	return st.Err()
}

// statusMessage is for logs: printable ASCII, short.
func statusMessage(text []byte) string {
	text = text[:min(len(text), maxStatusMessage)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(text))
}

// Detail returns the detail of a status that ToStatus made, or nil if err is
// not one: a transport's own error, or a plugin that does not send details.
func Detail(err error) *berthv1.ErrorDetail {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range st.Details() {
		if detail, ok := d.(*berthv1.ErrorDetail); ok {
			return detail
		}
	}
	return nil
}

// FromStatus returns the error that ToStatus was given, as far as it crossed: it
// has the same text, and errors.Is and errors.As find the same. A status
// without a detail of ours keeps its text and is what its code plainly says, such
// as errors.ErrUnsupported for Unimplemented. Anything else, a transport's
// error too, is returned as it is.
func FromStatus(err error) error {
	if detail := Detail(err); detail != nil {
		return FromDetail(detail)
	}
	if known, ok := bare[status.Code(err)]; ok {
		return &remoteError{text: err.Error(), known: []error{known, err}}
	}
	return err
}

// Answered reports whether err is what the plugin answered: it carries a detail of
// ours, or a code that says as much. Any other is a failure of the plugin or of
// the connection to it, after which only the host knows what may have happened.
func Answered(err error) bool {
	if Detail(err) != nil {
		return true
	}
	_, ok := bare[status.Code(err)]
	return ok
}

// ToDetail writes an error. It keeps the text, the kinds, the errno, the path
// and the typed errors in its chain, each text up to [MaxErrorText]. An error
// that panics when it is asked, a nil pointer in an interface, is one with just
// a text. Nil stays nil.
func ToDetail(err error) (detail *berthv1.ErrorDetail) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			detail = &berthv1.ErrorDetail{Message: cut(fmt.Sprintf("broken error value of type %T: %v", err, err), MaxErrorText)}
		}
	}()
	detail = &berthv1.ErrorDetail{Message: errorText(err)}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			detail.Kinds = append(detail.Kinds, k.name)
		}
	}
	if status.Code(err) == codes.Unimplemented && !slices.Contains(detail.Kinds, kindUnsupported) {
		// A call that the generated code answers: the plugin has no such feature.
		detail.Kinds = append(detail.Kinds, kindUnsupported)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		detail.Errno = errnoNames[errno]
	}
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &linkErr):
		detail.Path = &berthv1.PathDetail{
			Op: cut(linkErr.Op, maxErrorWord), Path: cut(linkErr.Old, MaxErrorText), To: cut(linkErr.New, MaxErrorText),
			Message: errorText(linkErr.Err),
		}
	case errors.As(err, &pathErr):
		detail.Path = &berthv1.PathDetail{
			Op: cut(pathErr.Op, maxErrorWord), Path: cut(pathErr.Path, MaxErrorText),
			Message: errorText(pathErr.Err),
		}
	}
	var timeout *workspace.TimeoutError
	if errors.As(err, &timeout) {
		detail.Timeout = &berthv1.TimeoutDetail{TimeoutNs: int64(timeout.Timeout), Ceiling: timeout.Ceiling, Survivors: cut(timeout.Survivors, MaxErrorText)}
	}
	var limit *workspace.OutputLimitError
	if errors.As(err, &limit) {
		detail.OutputLimit = &berthv1.OutputLimitDetail{Limit: limit.Limit, Survivors: cut(limit.Survivors, MaxErrorText)}
	}
	var plug *workspace.PluginError
	if errors.As(err, &plug) {
		detail.Plugin = &berthv1.PluginDetail{
			Provider: cut(plug.Provider, maxErrorWord), Op: cut(plug.Op, maxErrorWord), RunId: cut(plug.RunID, maxErrorWord),
			Pid: int64(plug.PID), ExitStatus: cut(plug.ExitStatus, maxErrorWord), Stderr: lastLines(plug.Stderr),
			MayHaveExecuted: plug.MayHaveExecuted, Reason: cut(plug.Reason, MaxErrorText),
			Workspace: cut(plug.Workspace, maxErrorWord),
		}
	}
	return detail
}

func errorText(err error) []byte { return cut(err.Error(), MaxErrorText) }

// cut keeps the first most bytes of a text, and says so where it cuts.
func cut(text string, most int) []byte {
	if len(text) > most {
		const mark = " … (cut)"
		text = text[:most-len(mark)] + mark
	}
	return []byte(text)
}

// lastLines keeps the last lines that fit into [MaxErrorText] together, each
// with the byte or two that it costs to tell its length.
func lastLines(lines []string) [][]byte {
	room, first := MaxErrorText, len(lines)
	for first > 0 && room >= maxErrorWord {
		first--
		room -= min(len(lines[first]), maxErrorWord) + 4
	}
	kept := make([][]byte, 0, len(lines)-first)
	for _, line := range lines[first:] {
		kept = append(kept, cut(line, maxErrorWord))
	}
	return kept
}

// FromDetail reads an error that ToDetail wrote. Whatever it does not know, a
// kind of a newer version, leaves an error with its text. It never returns nil:
// what should have been an error is no success.
func FromDetail(detail *berthv1.ErrorDetail) error {
	if detail == nil {
		return errNoDetail
	}
	var known []error         // what errors.Is and errors.As find
	for _, k := range kinds { // not the other way round: a peer may repeat a kind a million times
		if slices.Contains(detail.GetKinds(), k.name) {
			known = append(known, k.err)
		}
	}
	if errno, ok := errnos[detail.GetErrno()]; ok {
		known = append(known, errno)
	}
	if t := detail.GetTimeout(); t != nil {
		known = append(known, &workspace.TimeoutError{Timeout: time.Duration(t.GetTimeoutNs()), Ceiling: t.GetCeiling(), Survivors: string(t.GetSurvivors())})
	}
	if l := detail.GetOutputLimit(); l != nil {
		known = append(known, &workspace.OutputLimitError{Limit: l.GetLimit(), Survivors: string(l.GetSurvivors())})
	}
	if p := detail.GetPlugin(); p != nil {
		known = append(known, &workspace.PluginError{
			Provider: string(p.GetProvider()), Op: string(p.GetOp()), RunID: string(p.GetRunId()),
			PID: int(p.GetPid()), ExitStatus: string(p.GetExitStatus()), Stderr: ToBytesList(p.GetStderr()),
			MayHaveExecuted: p.GetMayHaveExecuted(), Reason: string(p.GetReason()),
			Workspace: string(p.GetWorkspace()),
		})
	}
	if p := detail.GetPath(); p != nil {
		cause := simplest(string(p.GetMessage()), known)
		if p.To != nil {
			known = []error{&os.LinkError{Op: string(p.GetOp()), Old: string(p.GetPath()), New: string(p.GetTo()), Err: cause}}
		} else {
			known = []error{&fs.PathError{Op: string(p.GetOp()), Path: string(p.GetPath()), Err: cause}}
		}
	}
	return simplest(string(detail.GetMessage()), known)
}

// simplest returns the one known error if that has the text already, so that a
// plain *fs.PathError or errno arrives as just that.
func simplest(text string, known []error) error {
	for _, err := range known {
		if err.Error() == text && covers(err, known) {
			return err
		}
	}
	return &remoteError{text: text, known: known}
}

// covers reports whether all of known can be found in err alone.
func covers(err error, known []error) bool {
	for _, k := range known {
		if !errors.Is(err, k) {
			return false
		}
	}
	return true
}

// remoteError is an error from the other side that no single type of ours can
// stand for.
type remoteError struct {
	text  string
	known []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.known }
