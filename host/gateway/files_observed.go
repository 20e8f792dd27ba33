package gateway

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxTarget is as much of a command or path as a session's log keeps.
const maxTarget = 200

// observation is an operation under way, for the session's log.
type observation struct {
	g       *Gateway
	session string
	event   session.Event
}

// observe begins one. The log holds what was asked for and how it went, and never
// any content, nor the value of a variable (contract B7).
func (g *Gateway) observe(id, op, target string) *observation {
	return &observation{g: g, session: id, event: session.Event{At: time.Now(), Op: op, Target: cut(target)}}
}

// done ends it.
func (o *observation) done(ok bool, detail string) {
	o.event.OK, o.event.Detail, o.event.Duration = ok, detail, time.Since(o.event.At)
	o.event.At = time.Now() // a log is in the order of ends
	o.g.sessions.Record(o.session, o.event)
}

// failed ends it with an error, or without one.
func (o *observation) failed(err error) { o.done(err == nil, failureDetail(err)) }

// failureDetail says in a word or two what an error is about, and nothing that a
// provider may have put into its text.
func failureDetail(err error) string {
	var wire *wireError
	var refused *session.Error
	var path *fs.PathError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &wire):
		switch detail := wire.detail.(type) {
		case fileDetail:
			if detail.Error == "FileNotFoundError" {
				return "not found"
			}
			return detail.Error
		case []invalidDetail:
			return "invalid"
		}
		return wire.Error()
	case errors.As(err, &refused):
		if refused.Kind == session.Gone {
			return "workspace gone"
		}
		return string(refused.Kind)
	case errors.Is(err, workspace.ErrUnavailable):
		return "workspace gone"
	case errors.As(err, &path):
		return failureDetail(mapPathError(path))
	case errors.Is(err, workspace.ErrInvalid):
		return "invalid"
	case errors.Is(err, context.Canceled):
		return "given up by its client"
	case errors.Is(err, errors.ErrUnsupported):
		return "not supported"
	}
	return "failed"
}

// cut makes any text fit for a log.
func cut(text string) string {
	if len(text) > maxTarget {
		text = strings.ToValidUTF8(text[:maxTarget], "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// shellWords writes an argv as a shell would read it, as far as a log keeps it.
func shellWords(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if b.Len() > maxTarget {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(shellWord(arg[:min(len(arg), 2*maxTarget)]))
	}
	return b.String()
}

func shellWord(arg string) string {
	special := func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("_@%+=:,./-", r)
	}
	if arg != "" && !strings.ContainsFunc(arg, special) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
