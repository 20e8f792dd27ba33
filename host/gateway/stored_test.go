//go:build unix

package gateway

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// storedCall reads what is kept of a session.
func (tg *testGateway) storedCall(id, op string, body map[string]any) *answered {
	tg.t.Helper()
	return tg.call(serviceToken, http.MethodPost, "/workspaces/"+id+"/"+op, body)
}

func names(entries any) string {
	var all []string
	for _, e := range entries.([]any) {
		all = append(all, e.(map[string]any)["path"].(string))
	}
	return strings.Join(all, " ")
}

func TestStored(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	tg.sh(token, "s", `mkdir -p d/e/f z; printf 'hello\nworld\n' > f; ln -s f l; ln -s / root; ln -s loop loop; mkfifo ff; seq 1 30 > s.txt; printf 'a\000b' > bin; touch d/x d/e/y`)
	at := func(op, path string, more ...any) *answered {
		t.Helper()
		body := map[string]any{"path": path}
		for i := 0; i < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		return tg.storedCall("s", op, body)
	}
	detail := func(a *answered, status int) {
		t.Helper()
		if text := toText(a.object(status)["detail"]); text == "" {
			t.Errorf("%s: no word of why: %s", a.what, a.body)
		}
	}
	for _, state := range []string{"open", "closed"} {
		if state == "closed" {
			tg.call(token, http.MethodDelete, "/sessions/s", nil).is(http.StatusNoContent)
		}
		for _, path := range []string{".", "", "/", dir, dir + "/", "./."} {
			var list []any
			if err := json.Unmarshal(at("ls", path).is(http.StatusOK).body, &list); err != nil {
				t.Fatal(err)
			}
			if got := names(list); got != "d z bin f ff s.txt" {
				t.Errorf("%s: %q: %s", state, path, got)
			}
			if f := list[3].(map[string]any); f["name"] != "f" || f["size"] != 12.0 || f["modified_at"] == nil || f["is_dir"] != false {
				t.Errorf("%v", f)
			}
		}
		if list := at("ls", "d/e/f").is(http.StatusOK).body; strings.TrimSpace(string(list)) != "[]" {
			t.Errorf("%s", list)
		}
		for _, op := range []string{"ls", "tree", "read", "read_bytes"} {
			for _, path := range []string{"nope", "f/x", "/etc/passwd"} {
				detail(at(op, path), http.StatusNotFound)
			}
			for _, path := range []string{"../x", "d/../d", "root", "root/etc", "loop", "a\x00b", strings.Repeat("n", 300)} {
				detail(at(op, path), http.StatusBadRequest)
			}
			detail(tg.storedCall("none", op, map[string]any{"path": "."}), http.StatusNotFound)
			tg.storedCall("a%20b", op, map[string]any{"path": "."}).invalid("string_pattern_mismatch", "path", "session_id")
			tg.call(token, http.MethodPost, "/workspaces/s/"+op, map[string]any{"path": "."}).is(http.StatusUnauthorized)
		}
		for _, path := range []string{"d", "."} {
			detail(at("read", path), http.StatusNotFound)
		}
		detail(at("ls", "f"), http.StatusNotFound)
		for _, path := range []string{"l", "ff"} {
			detail(at("read_bytes", path), http.StatusBadRequest)
		}

		tree := tg.storedCall("s", "tree", map[string]any{}).object(http.StatusOK)
		if got := names(tree["entries"]); got != "d z bin f ff s.txt d/e d/x d/e/f d/e/y" || tree["truncated"] != false {
			t.Errorf("%s %v", got, tree["truncated"])
		}
		for _, bound := range []struct {
			key   string
			value int
			want  string
		}{{"max_depth", 1, "d z bin f ff s.txt"}, {"max_entries", 1, "d"}} {
			tree := at("tree", ".", bound.key, bound.value).object(http.StatusOK)
			if got := names(tree["entries"]); got != bound.want || tree["truncated"] != true {
				t.Errorf("%s %d: %s %v", bound.key, bound.value, got, tree["truncated"])
			}
		}
		at("tree", ".", "max_depth", 0).invalid("greater_than_equal", "body", "max_depth")
		at("tree", ".", "max_depth", 65).invalid("less_than_equal", "body", "max_depth")
		at("read", "f", "offset", -1).invalid("greater_than_equal", "body", "offset")
		at("read", "f", "limit", 0).invalid("greater_than_equal", "body", "limit")

		for _, test := range []struct {
			path, want string
			more       []any
		}{
			{"f", "hello\nworld", nil},
			{dir + "/f", "hello\nworld", nil},
			{"s.txt", "3\n4\n5\n\n[25 more lines, from offset 5]", []any{"offset", 2, "limit", 3}},
			{"s.txt", "29\n30", []any{"offset", 28, "limit", 2}},
			{"s.txt", "[end of the file]", []any{"offset", 100}},
		} {
			if got := at("read", test.path, test.more...).object(http.StatusOK)["content"]; got != test.want {
				t.Errorf("%s %v: %q", test.path, test.more, got)
			}
		}
		detail(at("read", "bin"), http.StatusBadRequest)
		if got := at("read_bytes", "bin").object(http.StatusOK)["content_b64"]; got != base64.StdEncoding.EncodeToString([]byte("a\x00b")) {
			t.Errorf("%v", got)
		}
	}
	if err := os.WriteFile(dir+"/n\xff", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	detail(at("ls", "."), http.StatusConflict)
	if tree := at("tree", ".").object(http.StatusOK); tree["truncated"] != true {
		t.Errorf("%v", tree)
	}
}

func TestStored_Limit(t *testing.T) {
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxReadBytes = 10 })
	token := tg.open("s")
	tg.sh(token, "s", "printf 0123456789 > ok; printf 0123456789a > more")
	if got := tg.storedCall("s", "read", map[string]any{"path": "ok"}).object(http.StatusOK)["content"]; got != "0123456789" {
		t.Errorf("%q", got)
	}
	for _, op := range []string{"read", "read_bytes"} {
		tg.storedCall("s", op, map[string]any{"path": "more"}).object(http.StatusBadRequest)
	}
}

func TestStored_Trees(t *testing.T) {
	tg := newTestGateway(t)
	for _, id := range []string{"a", "b"} {
		tg.sh(tg.open(id), id, "mkdir d; touch f-"+id)
	}
	got := tg.call(serviceToken, http.MethodPost, "/workspaces/trees", map[string]any{"sessions": []string{"a", "none", "b", "a"}, "max_depth": 2}).object(http.StatusOK)["results"].([]any)
	for i, want := range []string{"d f-a", "", "d f-b", "d f-a"} {
		result := got[i].(map[string]any)
		if want == "" {
			if result["tree"] != nil || result["status_code"] != 404.0 || result["error"] == "" || result["session_id"] != "none" {
				t.Errorf("%v", result)
			}
			continue
		}
		if result["error"] != nil || result["status_code"] != nil || names(result["tree"].(map[string]any)["entries"]) != want {
			t.Errorf("%v", result)
		}
	}
	trees := func(sessions ...string) *answered {
		return tg.call(serviceToken, http.MethodPost, "/workspaces/trees", map[string]any{"sessions": sessions})
	}
	trees("a b").invalid("string_pattern_mismatch", "body", "sessions", 0)
	tg.call(serviceToken, http.MethodPost, "/workspaces/trees", map[string]any{"sessions": []string{}}).invalid("too_short", "body", "sessions")
	trees(strings.Split(strings.Repeat("a,", 100)+"a", ",")...).invalid("too_long", "body", "sessions")
	tg.call(tg.open("c"), http.MethodPost, "/workspaces/trees", map[string]any{"sessions": []string{"c"}}).is(http.StatusUnauthorized)
}
