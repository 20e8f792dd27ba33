package sandboxd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

// What stands before a service, or in its place, may answer anything: nothing of it is
// taken for what the service has done.

// htmlKind is what a proxy's own page is of.
const htmlKind = "text/html"

// stage is a service of which a test plays a part.
type stage struct {
	mu     sync.Mutex
	asked  []string // method and path
	opened []createRequest
	plays  map[string]http.HandlerFunc // by method and the last word of the path
}

// newStage is a service whose sessions open, and a provider of it.
func newStage(t *testing.T, plays map[string]http.HandlerFunc) (*stage, *provider) {
	t.Helper()
	s := &stage{plays: plays}
	c := serve(t, s.answer)
	return s, &provider{client: c, opening: c.timeout, logger: hclog.NewNullLogger()}
}

func (s *stage) answer(w http.ResponseWriter, r *http.Request) {
	route := r.Method + " " + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	switch play := s.plays[route]; {
	case play != nil:
		play(w, r)
	case route == "POST sessions":
		var asked createRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		s.mu.Lock()
		s.opened = append(s.opened, asked)
		s.mu.Unlock()
		body, _ := json.Marshal(createAnswer{Token: "token", Session: sessionInfo{SessionID: asked.SessionID, Runtime: "debian"}})
		answering(200, jsonKind, string(body))(w, r)
	case route == "GET policy":
		answering(200, jsonKind, `{"execute_timeout":5}`)(w, r)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		answering(404, jsonKind, `{"detail":"Not Found"}`)(w, r)
	}
}

// TestDestroyBelievesOnlyTheService: what is not there is destroyed, but a 404 of
// something else does not tell, nor does a success of something else.
func TestDestroyBelievesOnlyTheService(t *testing.T) {
	const id = "berth-0123456789abcdef"
	for body, gone := range map[string]bool{
		`{"detail":"Nothing to attach to: ` + id + `"}`:          true,
		`{"detail":"Not Found"}`:                                 false,
		`{"detail":"No such session: another"}`:                  false,
		`{"error":"no such page"}`:                               false,
		`{"detail":{"error":"FileNotFoundError","message":"x"}}`: false,
	} {
		_, p := newStage(t, map[string]http.HandlerFunc{"POST sessions": answering(404, jsonKind, body)})
		if err := p.Destroy(t.Context(), id); (err == nil) != gone || !gone && errors.Is(err, workspace.ErrUnavailable) {
			t.Errorf("destroy, and attaching is answered %s: %v", body, err)
		}
	}
	for name, play := range map[string]http.HandlerFunc{
		"a page":     answering(200, htmlKind, "<html>sign in</html>"),
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
		"JSON":       answering(200, jsonKind, `{}`),
		"no route":   answering(404, jsonKind, `{"detail":"Not Found"}`),
	} {
		_, p := newStage(t, map[string]http.HandlerFunc{"DELETE " + id: play})
		if err := p.Destroy(t.Context(), id); err == nil || !strings.Contains(err.Error(), "is service_url right?") {
			t.Errorf("destroy, and it is answered with %s: %v", name, err)
		}
	}
	_, p := newStage(t, nil)
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// nativeSession is a session whose service says that it does files by itself.
func nativeSession(t *testing.T, plays map[string]http.HandlerFunc) (*stage, *session) {
	t.Helper()
	st, p := newStage(t, plays)
	s := &session{client: p.client, id: "x", provider: p, alive: t.Context()}
	t.Cleanup(s.tasks.Wait)
	s.access.Store(&access{policy: policy{ExecuteTimeout: 60, MaxReadBytes: 1 << 40, NativeFiles: true, NativeWrites: true}, facts: facts{tmp: "/tmp"}})
	return st, s
}

// TestFilesBelieveOnlyTheService: a file is written, and a directory made or removed,
// when the service says so, with 204.
func TestFilesBelieveOnlyTheService(t *testing.T) {
	for name, test := range map[string]struct {
		play http.HandlerFunc
		want error
		says string
	}{
		"done":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, nil, ""},
		"a page":     {answering(200, htmlKind, "<html>sign in</html>"), nil, "not its protocol"},
		"JSON":       {answering(200, jsonKind, `{"ok":true}`), nil, "not its protocol"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login?a=b", http.StatusFound) }, nil, "it leads to http://127.0.0.1:"},
		"no file":    {answering(404, jsonKind, `{"detail":{"error":"FileNotFoundError","message":"[Errno 2] of /host"}}`), fs.ErrNotExist, "no such file or directory"},
		"denied":     {answering(400, jsonKind, `{"detail":{"error":"PermissionError","message":"[Errno 13] of /host"}}`), fs.ErrPermission, "permission denied"},
	} {
		_, s := nativeSession(t, map[string]http.HandlerFunc{"POST write": test.play, "POST mkdir": test.play, "POST remove": test.play})
		write := func() error {
			w, err := s.Create(t.Context(), "/w/f", workspace.WriteOptions{})
			if err == nil {
				_, err = w.Write([]byte("text"))
			}
			if err != nil {
				return err
			}
			return w.Close()
		}
		for op, do := range map[string]func() error{
			"write":  write,
			"mkdir":  func() error { return s.MkdirAll(t.Context(), "/w/d") },
			"remove": func() error { return s.Remove(t.Context(), "/w/d") },
		} {
			switch err := do(); {
			case (err == nil) != (test.says == ""):
				t.Errorf("%s, answered with %s: %v", op, name, err)
			case err == nil:
			case !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "Errno") || strings.Contains(err.Error(), "a=b"):
				t.Errorf("%s, answered with %s: %v, want %q", op, name, err, test.says)
			case test.want != nil && (!errors.Is(err, test.want) || strings.Contains(err.Error(), "the service")):
				t.Errorf("%s, answered with %s: %v, want %v alone", op, name, err, test.want)
			}
		}
	}
}

// TestReadsAreTheSessionsOwn: what the service can read by itself, its own user may read,
// which the session's user may be forbidden to (contract F9).
func TestReadsAreTheSessionsOwn(t *testing.T) {
	_, s := nativeSession(t, map[string]http.HandlerFunc{
		"POST read": answering(200, "application/octet-stream", "not for you"),
	})
	about := "81a4 11 2020-01-02 03:04:05.000000000 +0000\n\x00" // what stat tells everybody
	status, said := 0, ""
	var err error
	s.FS, err = shellfs.NewPaged(t.Context(), shellfs.PagedConfig{
		Exec: func(context.Context, []string) ([]byte, int, []byte, error) {
			return []byte("b" + base64.StdEncoding.EncodeToString([]byte(said))), status, nil, nil
		},
		WorkingDir: "/w",
	})
	if err != nil {
		t.Fatal(err)
	}
	said = about + "n"
	r, err := s.Open(t.Context(), "/w/f", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); string(text) != "not for you" || err != nil || r.Info().Size != 11 {
		t.Errorf("it reads %q, %v", text, err)
	}
	const denied = 69 // as shellfs has it
	status, said = denied, ""
	if _, err := s.Open(t.Context(), "/w/f", workspace.ReadOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that the session's user may not read: %v", err)
	}
}

// TestListIsToBeThere: an answer without a list is not an empty one.
func TestListIsToBeThere(t *testing.T) {
	for body, fine := range map[string]bool{`{"sessions":[]}`: true, `{}`: false, `{"sessions":null}`: false, `{"sessions":{}}`: false} {
		_, p := newStage(t, map[string]http.HandlerFunc{"GET sessions": answering(200, jsonKind, body)})
		var err error
		for _, err = range p.List(t.Context(), workspace.ListOptions{}) {
		}
		if (err == nil) != fine {
			t.Errorf("a list %s: %v", body, err)
		}
	}
}

// TestFailedCreateLeavesNothing: a session that was opened for a token and cannot be used
// is destroyed; one of a name may be somebody's (contract L2).
func TestFailedCreateLeavesNothing(t *testing.T) {
	const token, name = "berth-0123456789abcdef", "named"
	for _, test := range []struct {
		req  sdk.CreateRequest
		left bool
	}{{sdk.CreateRequest{Token: token}, false}, {sdk.CreateRequest{Token: token, Name: name}, true}} {
		key := test.req.Key()
		st, p := newStage(t, map[string]http.HandlerFunc{
			"POST run": answering(410, jsonKind, `{"detail":"container is not running"}`),
		})
		if ws, err := p.Create(t.Context(), test.req); err == nil || ws != nil {
			t.Errorf("create %s: %v, %v", key, ws, err)
		}
		if left := !slices.Contains(st.asked, "DELETE /sessions/"+key); left != test.left {
			t.Errorf("create %s: is it left: %v", key, left)
		}
	}
}

// TestReopenedOnItsRuntime: a session that the service has closed is opened again on the
// runtime that it had, not on the configured one.
func TestReopenedOnItsRuntime(t *testing.T) {
	probed := head + "tmp /tmp\nhost h\nmount 1 -\nbase64\ndir /w\n"
	body, err := json.Marshal(map[string]any{"stdout": probed, "stderr": "", "exit_code": 0})
	if err != nil {
		t.Fatal(err)
	}
	st, s := nativeSession(t, map[string]http.HandlerFunc{"POST run": answering(200, jsonKind, string(body))})
	s.files, s.reopening = "folder 1 -", make(chan struct{}, 1)
	s.provider.config.Runtime = "configured"
	s.access.Store(&access{runtime: "its-own"})
	calls := 0
	err = s.call(t.Context(), func(*access) error {
		if calls++; calls == 1 {
			return &statusError{status: http.StatusNotFound, told: true, session: s.id, message: "No such session: " + s.id}
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if len(st.opened) != 1 || !st.opened[0].Attach || st.opened[0].Runtime != "its-own" {
		t.Errorf("it is attached to with %+v", st.opened)
	}
	if got := s.access.Load(); got.runtime != "debian" || !got.facts.base64 {
		t.Errorf("what it has is %+v", got)
	}
}

// TestFileOperationsDoNotWaitForCommands: a service that does not answer is told when
// request_timeout has passed, not when the longest command would have ended.
func TestFileOperationsDoNotWaitForCommands(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	_, s := nativeSession(t, map[string]http.HandlerFunc{"POST run": func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}})
	s.client.timeout = 100 * time.Millisecond
	for _, op := range []string{"rop_stat r/x", "rop_open r/x r0 r0", "rop_put r/x", "rop_more r/x", "rop_symlink ra r/x"} {
		_, _, _, err := s.exec(t.Context(), append([]string{"/bin/sh", "-c", "", "sh", "r100"}, strings.Fields(op)...))
		if !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "within 100ms") {
			t.Errorf("%s: %v", op, err)
		}
	}
}
