//go:build unix

package gateway

import (
	"net/http"
	"strings"
	"testing"
)

const someRun = "0123456789abcdef0123456789abcdef"

// run runs a command with a run id of its own.
func (tg *testGateway) run(token, id string, body map[string]any) *answered {
	tg.t.Helper()
	if body["run_id"] == nil {
		body["run_id"] = newRunID()
	}
	return tg.call(token, http.MethodPost, "/sessions/"+id+"/run", body)
}

// sh runs a script that must succeed, and returns what it wrote.
func (tg *testGateway) sh(token, id, script string) string {
	tg.t.Helper()
	out := tg.run(token, id, map[string]any{"argv": []string{"/bin/sh", "-c", script}}).object(http.StatusOK)
	if out["exit_code"] != 0.0 {
		tg.t.Fatalf("%.200s: %v", script, out)
	}
	return out["stdout"].(string)
}

func TestRun(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("demo-1")
	type object = map[string]any
	result := func(change object) object {
		r := object{"stdout": "", "stderr": "", "exit_code": 0.0, "timed_out": false, "output_limited": false, "output_limit": nil}
		for k, v := range change {
			r[k] = v
		}
		return r
	}
	for _, test := range []struct {
		name string
		body object
		want object
	}{
		{"both streams and a code", object{"argv": []string{"sh", "-c", "printf out; printf err >&2; exit 7"}}, object{"stdout": "out", "stderr": "err", "exit_code": 7.0}},
		{"a missing program", object{"argv": []string{"no-such-program"}, "env": object{"PATH": "/usr/bin:/bin"}}, object{"exit_code": 127.0}},
		{"not executable", object{"argv": []string{"/etc/passwd"}}, object{"exit_code": 126.0}},
		{"a signal", object{"argv": []string{"sh", "-c", "kill -9 $$"}}, object{"exit_code": 137.0}},
		{"a variable", object{"argv": []string{"sh", "-c", `printf '%s' "$A"`}, "env": object{"A": "x y'z\n$HOME"}}, object{"stdout": "x y'z\n$HOME"}},
		{"a timeout", object{"argv": []string{"sh", "-c", "echo before; echo e >&2; sleep 30"}, "timeout_seconds": 1}, object{"stdout": "before\n", "stderr": "e\n", "exit_code": nil, "timed_out": true}},
		{"what is not UTF-8", object{"argv": []string{"sh", "-c", `printf 'a\377b'`}}, object{"stdout": "a\ufffdb"}},
		{"stdin", object{"argv": []string{"sh", "-c", "read value || printf eof"}, "timeout_seconds": nil}, object{"stdout": "eof"}},
		{"keys that nobody knows", object{"argv": []string{"true"}, "image": "evil:1"}, nil},
		{"a long timeout", object{"argv": []string{"true"}, "timeout_seconds": 1e300}, nil},
		{"an id again", object{"argv": []string{"true"}, "run_id": someRun}, nil},
		{"an id once more", object{"argv": []string{"true"}, "run_id": someRun}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			tg := &testGateway{Gateway: tg.Gateway, t: t, server: tg.server}
			got := tg.run(token, "demo-1", test.body).object(http.StatusOK)
			want := result(test.want)
			if code := want["exit_code"]; code == 127.0 || code == 126.0 {
				delete(got, "stderr") // a word of the system's
				delete(want, "stderr")
			}
			for k, v := range want {
				if got[k] != v {
					t.Errorf("%s is %v, want %v", k, got[k], v)
				}
				delete(got, k)
			}
			if len(got) > 0 {
				t.Errorf("also: %v", got)
			}
		})
	}
	if dir := tg.sh(serviceToken, "demo-1", "pwd -P"); !strings.HasPrefix(dir, "/") {
		t.Errorf("the working directory is %q", dir)
	}
}
