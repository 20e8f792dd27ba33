//go:build gateway

package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/docker/enginetest"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// exchange is a request that the real sandboxd and berth both get. They answer with
// the same status and the same shape, but where berth is meant to differ.
type exchange struct {
	name         string
	method, path string
	body         string // JSON, but for a write
	token        string // the service's, unless it is "none" or "wrong"
	ours         int    // berth's own status, if its answer is another
	why          string // it is
}

const someRun = `"run_id":"0123456789abcdef0123456789abcdef"`

var exchanges = []exchange{
	{name: "index", method: "GET", path: "/", token: "none"},
	{name: "health", method: "GET", path: "/healthz", token: "none"},
	{name: "policy without a token", method: "GET", path: "/policy", token: "none"},
	{name: "policy with a wrong one", method: "GET", path: "/policy", token: "wrong"},
	{name: "policy", method: "GET", path: "/policy"},
	{name: "create", method: "POST", path: "/sessions", body: `{"session_id":"demo","runtime":"busybox"}`},
	{name: "same id again", method: "POST", path: "/sessions", body: `{"session_id":"demo","runtime":"busybox"}`},
	{name: "same id with reuse", method: "POST", path: "/sessions", body: `{"session_id":"demo","runtime":"busybox","reuse":true}`},
	{name: "reuse with another runtime", method: "POST", path: "/sessions", body: `{"session_id":"demo","runtime":"debian","reuse":true}`},
	{name: "attach to open", method: "POST", path: "/sessions", body: `{"session_id":"demo","attach":true}`},
	{name: "attach to none", method: "POST", path: "/sessions", body: `{"session_id":"nope","attach":true}`},
	{name: "attach without an id", method: "POST", path: "/sessions", body: `{"attach":true}`},
	{name: "unknown runtime", method: "POST", path: "/sessions", body: `{"runtime":"ruby"}`},
	{name: "bad id", method: "POST", path: "/sessions", body: `{"session_id":"../etc"}`},
	{name: "bad tenant", method: "POST", path: "/sessions", body: `{"tenant":"a b"}`},
	{name: "extra field", method: "POST", path: "/sessions", body: `{"image":"evil:1","session_id":"extra","runtime":"busybox"}`},
	{name: "not JSON", method: "POST", path: "/sessions", body: `{`},
	{name: "create without a token", method: "POST", path: "/sessions", body: `{}`, token: "none"},
	{name: "run", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","printf out; printf err >&2; exit 7"],` + someRun + `}`},
	{name: "run, missing program", method: "POST", path: "/sessions/demo/run", body: `{"argv":["no-such-program"],` + someRun + `}`},
	{name: "run, not executable", method: "POST", path: "/sessions/demo/run", body: `{"argv":["/etc/passwd"],` + someRun + `}`},
	{name: "run, killed by a signal", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","kill -9 $$"],` + someRun + `}`},
	{name: "run, env", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","printf '%s' \"$A\""],"env":{"A":"x y'z\n$HOME"},` + someRun + `}`},
	{name: "run, bad env name", method: "POST", path: "/sessions/demo/run", body: `{"argv":["env"],"env":{"A=B":"1"},` + someRun + `}`, ours: 422, why: "it would set another variable (contract C1)"},
	{name: "run, NUL in an argument", method: "POST", path: "/sessions/demo/run", body: `{"argv":["echo","a\u0000b"],` + someRun + `}`, ours: 422, why: "a wrapper's failure is none of the command (contract C1)"},
	{name: "run, empty argv", method: "POST", path: "/sessions/demo/run", body: `{"argv":[],` + someRun + `}`},
	{name: "run, no run id", method: "POST", path: "/sessions/demo/run", body: `{"argv":["true"]}`},
	{name: "run, bad run id", method: "POST", path: "/sessions/demo/run", body: `{"argv":["true"],"run_id":"abc"}`},
	{name: "run, timeout 0", method: "POST", path: "/sessions/demo/run", body: `{"argv":["true"],"timeout_seconds":0,` + someRun + `}`},
	{name: "run, timed out", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","echo before; echo e >&2; sleep 30"],"timeout_seconds":1,` + someRun + `}`},
	{name: "run, not UTF-8", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","printf 'a\\377b'"],` + someRun + `}`},
	{name: "run, over the output limit", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","yes 0123456789"],"timeout_seconds":60,` + someRun + `}`},
	{name: "stop of an unknown run", method: "POST", path: "/sessions/demo/runs/fedcba9876543210fedcba9876543210/stop"},
	{name: "run in no session", method: "POST", path: "/sessions/none/run", body: `{"argv":["true"],` + someRun + `}`},
	{name: "write, relative", method: "POST", path: "/sessions/demo/files/write?path=a/b.bin", body: "x"},
	{name: "write, parents made", method: "POST", path: "/sessions/demo/files/write?path=/workspace/a/b.bin", body: "\x00\xff hello\n"},
	{name: "write without a path", method: "POST", path: "/sessions/demo/files/write", body: "x"},
	{name: "write of 9 MiB", method: "POST", path: "/sessions/demo/files/write?path=/workspace/big", body: strings.Repeat("x", 9<<20)},
	{name: "read", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/workspace/a/b.bin"}`},
	{name: "stat of a file", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/a/b.bin"}`},
	{name: "stat of a folder", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/a"}`},
	{name: "list", method: "POST", path: "/sessions/demo/files/list", body: `{"path":"/workspace"}`},
	{name: "realpath", method: "POST", path: "/sessions/demo/files/realpath", body: `{"path":"/workspace/a/zz/y"}`},
	{name: "mkdir over a file", method: "POST", path: "/sessions/demo/files/mkdir", body: `{"path":"/workspace/a/b.bin"}`},
	{name: "mkdir below a file", method: "POST", path: "/sessions/demo/files/mkdir", body: `{"path":"/workspace/a/b.bin/c"}`},
	{name: "mkdir", method: "POST", path: "/sessions/demo/files/mkdir", body: `{"path":"/workspace/m/n"}`},
	{name: "mkdir again", method: "POST", path: "/sessions/demo/files/mkdir", body: `{"path":"/workspace/m/n"}`},
	{name: "list of a file", method: "POST", path: "/sessions/demo/files/list", body: `{"path":"/workspace/a/b.bin"}`},
	{name: "read of a folder", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/workspace/a"}`},
	{name: "read of nothing", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/workspace/nope"}`},
	{name: "remove of nothing", method: "POST", path: "/sessions/demo/files/remove", body: `{"path":"/workspace/nope"}`},
	{name: "remove of the working directory", method: "POST", path: "/sessions/demo/files/remove", body: `{"path":"/workspace"}`},
	{name: "NUL in a path", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/a\u0000b"}`},
	{name: "special files are made", method: "POST", path: "/sessions/demo/run", body: `{"argv":["sh","-c","ln -s a l; ln -s /nope d; mkfifo ff; dd if=/dev/zero of=big bs=1M count=9 2>/dev/null"],` + someRun + `}`},
	{name: "read over the limit", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/workspace/big"}`},
	{name: "read of a FIFO", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/workspace/ff"}`},
	{name: "stat of a FIFO", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/ff"}`},
	{name: "list with a link", method: "POST", path: "/sessions/demo/files/list", body: `{"path":"/workspace"}`, ours: 200, why: "links are followed natively"},
	{name: "stat of a dangling link", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/d"}`, ours: 404, why: "links are followed natively"},
	{name: "read outside the work directory", method: "POST", path: "/sessions/demo/files/read", body: `{"path":"/etc/passwd"}`, ours: 200, why: "native files are those of the whole workspace"},
	{name: "realpath that climbs", method: "POST", path: "/sessions/demo/files/realpath", body: `{"path":"/workspace/a/../a/b.bin"}`, ours: 200, why: "links are followed natively"},
	{name: "a name of 300 bytes", method: "POST", path: "/sessions/demo/files/stat", body: `{"path":"/workspace/` + strings.Repeat("n", 300) + `"}`, ours: 409, why: "theirs is a fault of the service"},
	{name: "remove", method: "POST", path: "/sessions/demo/files/remove", body: `{"path":"/workspace/a"}`},
	{name: "events", method: "GET", path: "/sessions/demo/events?after=0"},
	{name: "sessions", method: "GET", path: "/sessions"},
	{name: "session", method: "GET", path: "/sessions/demo"},
	{name: "session of none", method: "GET", path: "/sessions/none"},
	{name: "stored files", method: "POST", path: "/workspaces/demo/ls", body: `{"path":"."}`},
	{name: "policy update", method: "PUT", path: "/policy", body: `{"max_sessions":3}`},
	{name: "policy update, forbidden", method: "PUT", path: "/policy", body: `{"network_mode":"host"}`},
	{name: "delete, keep files", method: "DELETE", path: "/sessions/demo"},
	{name: "run after", method: "POST", path: "/sessions/demo/run", body: `{"argv":["true"],` + someRun + `}`},
	{name: "attach after delete", method: "POST", path: "/sessions", body: `{"session_id":"demo","attach":true}`, ours: 200, why: "it comes back on the runtime that it had"},
	{name: "purge", method: "DELETE", path: "/sessions/demo?purge=true"},
	{name: "purge again", method: "DELETE", path: "/sessions/demo?purge=true"},
	{name: "attach after purge", method: "POST", path: "/sessions", body: `{"session_id":"demo","attach":true}`},
}

// TestExchanges asks the real sandboxd and berth the same, one after the other, and
// compares.
func TestExchanges(t *testing.T) {
	t.Parallel()
	python(t) // or there is nothing to compare with
	theirs := sandboxdtest.Start(t, nil)
	provider, providers := dockerProvider(t, "busybox", map[string]any{})
	ours := serve(t, setup{providers: providers, asRoot: true, gateway: map[string]any{
		"default_runtime": "debian",
		"runtimes": map[string]any{
			"busybox": map[string]any{"provider": provider},
			"debian":  map[string]any{"provider": provider, "config": map[string]any{"image": enginetest.Image(t, "debian")}},
		},
	}})
	for _, e := range exchanges {
		status, body, err := e.ask(t, theirs.URL, theirs.Token)
		// It closes the connection under who still sends what it has refused.
		for tries := 0; err != nil && len(e.body) > 1<<20 && tries < 10; tries++ {
			status, body, err = e.ask(t, theirs.URL, theirs.Token)
		}
		if err != nil {
			t.Fatalf("%s: theirs: %v", e.name, err)
		}
		gotStatus, got, err := e.ask(t, ours.url, ours.token)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		fault := differs(body, got, "")
		switch {
		case e.ours != 0 && gotStatus != e.ours:
			t.Errorf("%s: %d %.300v, want %d because %s", e.name, gotStatus, got, e.ours, e.why)
		case e.ours != 0 && gotStatus == status && fault == "":
			t.Errorf("%s: as theirs, and is said to differ because %s", e.name, e.why)
		case e.ours == 0 && gotStatus != status:
			t.Errorf("%s: %d %.300v, want as theirs %d %.300v", e.name, gotStatus, got, status, body)
		case e.ours == 0 && fault != "":
			t.Errorf("%s: %s:\n%.500v\ntheirs:\n%.500v", e.name, fault, got, body)
		}
	}
}

// ask makes the request and reads the answer: JSON, or the bytes.
func (e exchange) ask(t *testing.T, url, token string) (status int, body any, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), e.method, url+e.path, strings.NewReader(e.body))
	if err != nil {
		return 0, nil, err
	}
	switch e.token {
	case "":
		req.Header.Set("X-Sandbox-Token", token)
	case "wrong":
		req.Header.Set("X-Sandbox-Token", "not-"+token)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.Contains(e.path, "/files/write") {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	connections := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := connections.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") || len(data) == 0 {
		return resp.StatusCode, data, nil
	}
	err = json.Unmarshal(data, &body)
	return resp.StatusCode, body, err
}

// decisive are values that a client decides on: they are the same, not just alike.
var decisive = map[string]bool{
	".exit_code": true, ".timed_out": true, ".output_limited": true, ".output_limit": true, ".stdout": true,
	".detail.error": true, ".is_dir": true, ".name": true, ".path": true, ".size": true,
	".session.session_id": true, ".session.runtime": true, ".session.state": true, ".state": true,
}

// differs says how an answer is not of the shape of another: it has all of its keys,
// with values of the same kinds. What is null may be known to the other.
func differs(want, got any, at string) string {
	switch want := want.(type) {
	case nil:
		return ""
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return at + " is no object"
		}
		for key, value := range want {
			if key == "ctx" || key == "input" { // what a validator says of itself
				continue
			}
			other, ok := object[key]
			if !ok {
				return at + "." + key + " is missing"
			}
			if fault := differs(value, other, at+"."+key); fault != "" {
				return fault
			}
		}
		return ""
	case []any:
		list, ok := got.([]any)
		if !ok {
			return at + " is no list"
		}
		if len(want) > 0 && len(list) > 0 {
			return differs(want[0], list[0], at)
		}
		return ""
	}
	if got != nil && reflect.TypeOf(want) != reflect.TypeOf(got) {
		return at + " is of another kind"
	}
	if _, raw := want.([]byte); (raw || decisive[at]) && !reflect.DeepEqual(want, got) {
		return at + " is not the same"
	}
	return ""
}
