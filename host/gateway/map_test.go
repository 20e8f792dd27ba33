package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMapErrorHasAStatusForEveryError(t *testing.T) {
	path := func(err error) error { return &fs.PathError{Op: "stat", Path: "/a", Err: err} }
	for _, test := range []struct {
		err    error
		status int
		body   string
		retry  bool
	}{
		{&session.Error{Kind: session.NotFound, Text: "No such session: x"}, 404, `{"detail":"No such session: x"}`, false},
		{&session.Error{Kind: session.Opening, Text: "Session is opening: x"}, 409, `{"detail":"Session is opening: x"}`, false},
		{&session.Error{Kind: session.Ceiling, Text: "t"}, 429, `{"detail":"t"}`, false},
		{&session.Error{Kind: session.Failed, Text: "t"}, 502, `{"detail":"t"}`, false},
		{&session.Error{Kind: session.Transient, Text: "t"}, 503, `{"detail":"t"}`, true},
		{fmt.Errorf("opening: %w", &session.Error{Kind: session.Gone, Text: "t"}), 410, `{"detail":"t"}`, false},
		{&session.Error{Kind: session.Invalid, Text: "t"}, 422, `{"detail":[{"type":"value_error","loc":["body"],"msg":"t","input":null}]}`, false},
		{&session.Error{Kind: "of a later version", Text: "t"}, 500, `{"detail":"Internal Server Error"}`, false},
		{fmt.Errorf("the workspace: %w", workspace.ErrUnavailable), 410, `{"detail":"the workspace: workspace unavailable"}`, false},
		{fmt.Errorf("x: %w", workspace.ErrTransient), 503, `{"detail":"x: temporary fault"}`, true},
		{&workspace.PluginError{Provider: "p", Op: "run", Reason: "it died"}, 503, `{"detail":"provider p: run: it died (the call was not carried out)"}`, true},
		{&workspace.PluginError{Provider: "p", Op: "run", Reason: "it died", MayHaveExecuted: true}, 502, `{"detail":"provider p: run: it died (the call may have been carried out)"}`, false},
		{fmt.Errorf("x: %w", errors.ErrUnsupported), 501, `{"detail":"x: unsupported operation"}`, false},
		{fmt.Errorf("x: %w", workspace.ErrInvalid), 400, `{"detail":"x: invalid request"}`, false},
		{path(fs.ErrNotExist), 404, `{"detail":{"error":"FileNotFoundError","message":"/a: file does not exist"}}`, false},
		{path(syscall.ENOENT), 404, `{"detail":{"error":"FileNotFoundError","message":"/a: no such file or directory"}}`, false},
		{path(fs.ErrExist), 400, `{"detail":{"error":"FileExistsError","message":"/a: file already exists"}}`, false},
		{path(syscall.EISDIR), 400, `{"detail":{"error":"IsADirectoryError","message":"/a: is a directory"}}`, false},
		{path(syscall.ENOTDIR), 400, `{"detail":{"error":"NotADirectoryError","message":"/a: not a directory"}}`, false},
		{path(syscall.EACCES), 400, `{"detail":{"error":"PermissionError","message":"/a: permission denied"}}`, false},
		{path(syscall.ENOTEMPTY), 400, `{"detail":{"error":"OSError","message":"/a: directory not empty"}}`, false},
		{path(syscall.ENAMETOOLONG), 400, `{"detail":{"error":"OSError","message":"/a: file name too long"}}`, false},
		{path(workspace.ErrInvalid), 400, `{"detail":{"error":"ValueError","message":"/a: invalid request"}}`, false},
		{&fs.PathError{Op: "stat", Path: "a\xff", Err: fs.ErrNotExist}, 404, `{"detail":{"error":"FileNotFoundError","message":"a` + "\uFFFD" + `: file does not exist"}}`, false},
		{context.Canceled, 503, `{"detail":"the request was cut off"}`, true},
		{errors.New("a secret of the program's"), 500, `{"detail":"Internal Server Error"}`, false},
		{errFile(http.StatusConflict, "ValueError", "kept as it is"), 409, `{"detail":{"error":"ValueError","message":"kept as it is"}}`, false},
	} {
		var wire *wireError
		if err := mapError(test.err); !errors.As(err, &wire) {
			t.Errorf("%v: became %v", test.err, err)
			continue
		}
		var body strings.Builder
		encoder := json.NewEncoder(&body)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(wire.body()); err != nil {
			t.Error(err)
		}
		if wire.status != test.status || strings.TrimSpace(body.String()) != test.body {
			t.Errorf("%v: %d %s\nwant %d %s", test.err, wire.status, body.String(), test.status, test.body)
		}
		if retry := wire.GetHeaders().Get("Retry-After"); (retry != "") != test.retry {
			t.Errorf("%v: retry after %q", test.err, retry)
		}
	}
	if err := mapError(nil); err != nil {
		t.Error(err)
	}
}

func TestEveryKindOfTheManagersHasAStatus(t *testing.T) {
	for _, kind := range []session.Kind{
		session.NotFound, session.Exists, session.Opening, session.OtherRuntime, session.UnknownRuntime, session.NothingToAttach,
		session.NeedsID, session.Ceiling, session.Unauthorized, session.Gone, session.Failed, session.Transient, session.RunExists,
	} {
		if statuses[kind] == 0 {
			t.Errorf("%s has none", kind)
		}
	}
}

func TestPlainTextIsBoundedAndUnicode(t *testing.T) {
	got := plain(strings.Repeat("ä", maxText))
	if len(got) > maxText+10 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-6:])
	}
	if got := plain("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}
