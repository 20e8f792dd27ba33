package gateway

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	ownToken    = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	anonymousID = regexp.MustCompile(`^s-[0-9a-f]{16}$`)
)

const invalidToken = "Invalid or missing sandbox token"

// checkInfo demands that an answer tells of a running session, and of nothing else.
func checkInfo(t *testing.T, info map[string]any, id, runtime string, tenant any) {
	t.Helper()
	now := float64(time.Now().Unix())
	for _, key := range []string{"created_at", "last_activity"} {
		if at, ok := info[key].(float64); !ok || at < now-3600 || at > now+60 {
			t.Errorf("%s is %v", key, info[key])
		}
		delete(info, key)
	}
	if idle, ok := info["idle_seconds"].(float64); !ok || idle < 0 || idle > 3600 {
		t.Errorf("idle_seconds is %v", info["idle_seconds"])
	}
	delete(info, "idle_seconds")
	want := map[string]any{"session_id": id, "runtime": runtime, "tenant": tenant, "alive": true, "state": "running", "usage": nil}
	if !reflect.DeepEqual(info, want) {
		t.Errorf("%v\nwant %v", info, want)
	}
}

func TestSessionsAreOpenedReusedAndAttached(t *testing.T) {
	tg := newTestGateway(t)
	post := func(body any) *answered { return tg.call(serviceToken, http.MethodPost, "/sessions", body) }
	type m = map[string]any
	created := post(m{"session_id": "demo-1", "runtime": "other"}).object(http.StatusOK)
	checkInfo(t, created["session"].(m), "demo-1", "other", nil)
	token, _ := created["token"].(string)
	if !ownToken.MatchString(token) || len(created) != 2 {
		t.Errorf("%v", created)
	}
	post(m{"session_id": "demo-1", "runtime": "other"}).fails(http.StatusConflict, "Session exists: demo-1")
	for _, body := range []m{
		{"session_id": "demo-1", "runtime": "other", "reuse": true},
		{"session_id": "demo-1", "reuse": true},
		{"session_id": "demo-1", "attach": true},
	} {
		again := post(body).object(http.StatusOK)
		checkInfo(t, again["session"].(m), "demo-1", "other", nil)
		if got, _ := again["token"].(string); !ownToken.MatchString(got) {
			t.Errorf("%v: token %q", body, got)
		}
	}
	post(m{"session_id": "demo-1", "runtime": "folder", "reuse": true}).says(http.StatusConflict, "Session demo-1 is on runtime 'other', not 'folder'")
	post(m{"session_id": "nope-1", "attach": true}).fails(http.StatusNotFound, "Nothing to attach to: nope-1")
	post(m{"attach": true}).fails(http.StatusBadRequest, "attach needs the session_id to attach to")
	anonymous := post(m{"reuse": true, "tenant": "t-1"}).object(http.StatusOK)["session"].(m)
	id, _ := anonymous["session_id"].(string)
	if !anonymousID.MatchString(id) {
		t.Errorf("the id %q", id)
	}
	checkInfo(t, anonymous, id, "folder", "t-1")
	post(m{"runtime": "ruby"}).says(http.StatusBadRequest, "Unknown runtime", "ruby", "folder, other")
	extra := post(m{"image": "evil:1", "session_id": "demo-x"}).object(http.StatusOK)["session"].(m)
	checkInfo(t, extra, "demo-x", "folder", nil)
	nulls := post(`{"session_id":null,"runtime":null,"tenant":null,"reuse":null,"attach":null}`).object(http.StatusOK)["session"].(m)
	if id, _ := nulls["session_id"].(string); !anonymousID.MatchString(id) {
		t.Errorf("%v", nulls)
	}
}

func TestSessionsAreAskedForInOneShape(t *testing.T) {
	tg := newTestGateway(t)
	post := func(body any) *answered { return tg.call(serviceToken, http.MethodPost, "/sessions", body) }
	long := strings.Repeat("a", 65)
	for _, id := range []string{"../etc", "", "a b", ".a", "-a", "a/b", "ä", long, "a\n", "a\x00"} {
		fault := post(map[string]any{"session_id": id}).invalid("string_pattern_mismatch", "body", "session_id")
		if id != "" && fault["input"] != id {
			t.Errorf("%q: input %v", id, fault["input"])
		}
	}
	post(`{"tenant":"a b"}`).invalid("string_pattern_mismatch", "body", "tenant")
	post(`{"session_id":5}`).invalid("string_type", "body", "session_id")
	post(`{"reuse":"yes"}`).invalid("bool_type", "body", "reuse")
	post(`{"runtime":"`+strings.Repeat("r", 100)+`"}`).invalid("string_too_long", "body", "runtime")
	post(`[]`).invalid("dict_type", "body")
	post(`null`).invalid("dict_type", "body")
	post(`"x"`).invalid("dict_type", "body")
	if fault := post(`{`).invalid("json_invalid", "body", 1); fault["msg"] != "JSON decode error" || fault["ctx"] == nil {
		t.Errorf("%v", fault)
	}
	post("{} {}").invalid("json_invalid", "body", 4)
	post("{\"tenant\":\"\xff\"}").invalid("json_invalid", "body", 11)
	post(`{"tenant":"\ud800"}`).invalid("json_invalid", "body", 11)
	post(`{"tenant":"t","Tenant":"a b"}`).invalid("json_invalid", "body", 0)
	post(strings.Repeat("[", 100_000)).invalid("json_invalid", "body", 10_001)
	post("").invalid("missing", "body")
	post(nil).invalid("missing", "body")
	post([]byte(`{}`)).fails(http.StatusUnsupportedMediaType, "want a body of application/json")
	if got := post(`{"tenant":"` + strings.Repeat("t", 2<<20) + `"}`).object(http.StatusRequestEntityTooLarge)["detail"]; !strings.Contains(got.(string), "too large") {
		t.Errorf("%v", got)
	}
	if got := tg.call(serviceToken, http.MethodGet, "/sessions", nil).object(http.StatusOK)["sessions"].([]any); len(got) > 0 {
		t.Errorf("%d sessions were made", len(got))
	}
}

func TestTokensOpenWhatTheyAreFor(t *testing.T) {
	tg := newTestGateway(t)
	own, other := tg.open("mine"), tg.open("theirs")
	service := []struct{ method, path string }{
		{http.MethodGet, "/policy"}, {http.MethodPut, "/policy"}, {http.MethodPost, "/sessions"}, {http.MethodGet, "/sessions"},
	}
	session := []struct{ method, path string }{
		{http.MethodGet, "/sessions/mine"}, {http.MethodGet, "/sessions/mine/events"}, {http.MethodDelete, "/sessions/mine"},
	}
	wrong := map[string]string{
		"none": "", "a wrong one": "wrong", "one not ASCII": "tökn-of-the-service", "bytes": "\xff\xfe", "a long one": strings.Repeat("x", 10_000),
		"a part": serviceToken[1:], "more": serviceToken + "x", "spaces": " ",
	}
	for name, token := range wrong {
		t.Run(name, func(t *testing.T) {
			for _, c := range slices.Concat(service, session) {
				tg.call(token, c.method, c.path, nil).fails(http.StatusUnauthorized, invalidToken)
			}
			tg.call(token, http.MethodGet, "/sessions/none", nil).fails(http.StatusUnauthorized, invalidToken)
		})
	}
	for _, c := range service {
		tg.call(own, c.method, c.path, nil).fails(http.StatusUnauthorized, invalidToken)
	}
	for _, c := range session {
		tg.call(other, c.method, c.path, nil).fails(http.StatusUnauthorized, invalidToken)
	}
	tg.call(own, http.MethodGet, "/sessions/none", nil).fails(http.StatusUnauthorized, invalidToken)
	tg.call(own, http.MethodGet, "/sessions/mine", nil).is(http.StatusOK)
	tg.call(own, http.MethodGet, "/sessions/mine/events", nil).is(http.StatusOK)
	tg.call(own, http.MethodDelete, "/sessions/mine", nil).is(http.StatusNoContent)
	tg.call(serviceToken, http.MethodGet, "/sessions/theirs", nil).is(http.StatusOK)
	for _, path := range []string{"/", "/healthz", "/metrics", "/openapi.json"} {
		tg.call("", http.MethodGet, path, nil).is(http.StatusOK)
		tg.call("wrong", http.MethodGet, path, nil).is(http.StatusOK)
	}
	// A token that is too long for any header.
	tg.call(strings.Repeat("x", maxHeader*20), http.MethodGet, "/policy", nil).is(http.StatusRequestHeaderFieldsTooLarge)
}

// A token is checked before anything of the body is read: who has none cannot have
// us read it, nor learn what we think of it.
func TestWhoMayCallIsDecidedBeforeTheBody(t *testing.T) {
	tg := newTestGateway(t)
	for _, body := range []any{`{`, `{"session_id":"../etc"}`, []byte("x"), "", strings.Repeat("x", 3<<20)} {
		tg.call("wrong", http.MethodPost, "/sessions", body).fails(http.StatusUnauthorized, invalidToken)
	}
	body := &watchedBody{}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tg.server.URL+"/sessions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 100
	req.Header.Set("Expect", "100-continue")
	tg.server.Client().Transport.(*http.Transport).ExpectContinueTimeout = soon
	tg.send(req).fails(http.StatusUnauthorized, invalidToken)
	if body.read {
		t.Error("the body was asked for")
	}
}

// watchedBody is one that nobody should read.
type watchedBody struct{ read bool }

func (b *watchedBody) Read([]byte) (int, error) {
	b.read = true
	return 0, fmt.Errorf("it was read")
}

func TestSessionsAreListedAndClosed(t *testing.T) {
	tg := newTestGateway(t)
	type m = map[string]any
	list := func() m {
		return tg.call(serviceToken, http.MethodGet, "/sessions?usage=true", nil).object(http.StatusOK)
	}
	if got := list(); !reflect.DeepEqual(got, m{"sessions": []any{}, "limit": nil, "open_limit": nil, "tenant_limit": nil}) {
		t.Errorf("%v", got)
	}
	tg.open("a")
	tg.open("b")
	got := list()["sessions"].([]any)
	if len(got) != 2 {
		t.Fatalf("%v", got)
	}
	checkInfo(t, got[0].(m), "a", "folder", nil)
	checkInfo(t, got[1].(m), "b", "folder", nil)
	checkInfo(t, tg.call(serviceToken, http.MethodGet, "/sessions/a", nil).object(http.StatusOK), "a", "folder", nil)

	// Closed, and its files kept: it is nowhere but in an attach.
	tg.call(serviceToken, http.MethodDelete, "/sessions/a", nil).is(http.StatusNoContent)
	tg.call(serviceToken, http.MethodDelete, "/sessions/a", nil).fails(http.StatusNotFound, "No such session: a")
	tg.call(serviceToken, http.MethodGet, "/sessions/a", nil).fails(http.StatusNotFound, "No such session: a")
	tg.call(serviceToken, http.MethodGet, "/sessions/a/events", nil).fails(http.StatusNotFound, "No such session: a")
	if got := list()["sessions"].([]any); len(got) != 1 {
		t.Errorf("%v", got)
	}
	attached := tg.call(serviceToken, http.MethodPost, "/sessions", m{"session_id": "a", "attach": true}).object(http.StatusOK)
	checkInfo(t, attached["session"].(m), "a", "folder", nil)

	tg.call(serviceToken, http.MethodDelete, "/sessions/a?purge=true", nil).is(http.StatusNoContent)
	tg.call(serviceToken, http.MethodDelete, "/sessions/a?purge=true", nil).fails(http.StatusNotFound, "No such session: a")
	tg.call(serviceToken, http.MethodPost, "/sessions", m{"session_id": "a", "attach": true}).fails(http.StatusNotFound, "Nothing to attach to: a")
	if folders, err := os.ReadDir(tg.root); err != nil || len(folders) != 1 {
		t.Errorf("%d folders are left, %v", len(folders), err)
	}
	for query, kind := range map[string]string{"purge=perhaps": "bool_parsing", "purge": "bool_parsing", "purge=": "bool_parsing", "purge=true&purge=false": "value_error"} {
		tg.call(serviceToken, http.MethodDelete, "/sessions/b?"+query, nil).invalid(kind, "query", "purge")
	}
	tg.call(serviceToken, http.MethodDelete, "/sessions/b?%zz", nil).invalid("value_error", "query")
	tg.call(serviceToken, http.MethodGet, "/sessions/b/events?after=", nil).invalid("int_parsing", "query", "after")
	tg.call(serviceToken, http.MethodGet, "/sessions/b/events?after=-1", nil).invalid("greater_than_equal", "query", "after")
	tg.call(serviceToken, http.MethodGet, "/sessions/b?other=ignored", nil).is(http.StatusOK)
}

func TestOddIdsInPathsAreUnknownSessions(t *testing.T) {
	tg := newTestGateway(t)
	for _, id := range []string{"..%2Fetc", "%00", "%ff", "a%20b", "%F0%9F%9A%A2", strings.Repeat("a", 64), "'; DROP TABLE sessions; --"} {
		escaped := strings.ReplaceAll(strings.ReplaceAll(id, " ", "%20"), ";", "%3B")
		tg.call(serviceToken, http.MethodGet, "/sessions/"+escaped, nil).object(http.StatusNotFound)
		tg.call(serviceToken, http.MethodDelete, "/sessions/"+escaped, nil).object(http.StatusNotFound)
		tg.call("wrong", http.MethodGet, "/sessions/"+escaped+"/events", nil).status404or401(t)
	}
	tg.call(serviceToken, http.MethodGet, "/sessions/"+strings.Repeat("a", 65), nil).invalid("string_too_long", "path", "session_id")
}

// status404or401: an id that is no path segment has no operation to be refused by.
func (a *answered) status404or401(t *testing.T) {
	t.Helper()
	if a.status != http.StatusNotFound && a.status != http.StatusUnauthorized {
		t.Errorf("%s: %d", a.what, a.status)
	}
}

func TestTwoClientsOfOneNameGetOneSession(t *testing.T) {
	tg := newTestGateway(t)
	const clients = 8
	var wg sync.WaitGroup
	answers := make([]*answered, clients)
	for i := range clients {
		wg.Go(func() {
			deadline := time.Now().Add(soon)
			for {
				answers[i] = tg.call(serviceToken, http.MethodPost, "/sessions", map[string]any{"session_id": "race", "reuse": true})
				if answers[i].status != http.StatusConflict || time.Now().After(deadline) {
					return
				}
				if !strings.Contains(string(answers[i].body), `{"detail":"Session is opening: race"}`) {
					t.Errorf("%s", answers[i].body)
				}
			}
		})
	}
	wg.Wait()
	for _, a := range answers {
		checkInfo(t, a.object(http.StatusOK)["session"].(map[string]any), "race", "folder", nil)
	}
	if folders, err := os.ReadDir(tg.root); err != nil || len(folders) != 1 {
		t.Errorf("%d folders were made, %v", len(folders), err)
	}
}

func TestCreatesThatFail(t *testing.T) {
	refuse := func(how string) Runtime {
		return Runtime{Provider: "folder", Config: map[string]any{"refuse": how}}
	}
	tg := newTestGateway(t, func(c *Config) {
		c.Runtimes["busy"], c.Runtimes["wrong"] = refuse("transient"), refuse("invalid")
		c.Runtimes["unknown"] = Runtime{Provider: "folder", Config: map[string]any{"nosuch": 1}}
	})
	post := func(runtime string) *answered {
		return tg.call(serviceToken, http.MethodPost, "/sessions", map[string]any{"session_id": "x", "runtime": runtime})
	}
	busy := post("busy")
	busy.says(http.StatusServiceUnavailable, "the folder is busy")
	if busy.header.Get("Retry-After") == "" {
		t.Error("no word when to try again")
	}
	for _, runtime := range []string{"wrong", "unknown"} {
		if detail, _ := post(runtime).object(http.StatusBadGateway)["detail"].(string); detail == "" {
			t.Errorf("%s: no detail", runtime)
		}
	}
	tg.call(serviceToken, http.MethodGet, "/sessions/x", nil).fails(http.StatusNotFound, "No such session: x")
	tg.open("x")
}

func TestCeilings(t *testing.T) {
	one, two := 1, 2
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxSessions, c.Policy.MaxSessionsPerTenant = &two, &one })
	post := func(id, tenant string) *answered {
		return tg.call(serviceToken, http.MethodPost, "/sessions", map[string]any{"session_id": id, "tenant": tenant})
	}
	post("a", "t").is(http.StatusOK)
	post("b", "t").object(http.StatusTooManyRequests)
	post("b", "u").is(http.StatusOK)
	post("c", "v").object(http.StatusTooManyRequests)
	got := tg.call(serviceToken, http.MethodGet, "/sessions", nil).object(http.StatusOK)
	if got["limit"] != 2. || got["tenant_limit"] != 1. || len(got["sessions"].([]any)) != 2 {
		t.Errorf("%v", got)
	}
}
