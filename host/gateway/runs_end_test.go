//go:build unix

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// eventually polls for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// exists says whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pid reads one that a command has written.
func pid(t testing.TB, path string) int {
	t.Helper()
	var n int
	eventually(t, "a process id in "+path, func() bool {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	return n
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestRun_Stop(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	done := make(chan *answered, 1)
	go func() {
		done <- tg.run(token, "s", map[string]any{"run_id": someRun, "argv": []string{"sh", "-c", "echo hi; sleep 300 & echo $! > child; sleep 300"}})
	}()
	child := pid(t, dir+"/child")
	began := time.Now()
	tg.call(token, http.MethodPost, "/sessions/s/runs/"+someRun+"/stop", nil).is(http.StatusNoContent)
	got := (<-done).object(http.StatusOK)
	if got["stdout"] != "hi\n" || got["exit_code"] != 143.0 || got["timed_out"] != false {
		t.Errorf("%v", got)
	}
	t.Logf("stopped after %v", time.Since(began))
	if alive(child) {
		t.Error("a child lives on")
	}
	runs := tg.call(token, http.MethodGet, "/sessions/s/runs", nil).object(http.StatusOK)["runs"].([]any)
	last := runs[len(runs)-1].(map[string]any)
	if last["run_id"] != someRun || last["running"] != false || last["detail"] != "stopped" {
		t.Errorf("%v", last)
	}
}

func TestRun_IDInUse(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	done := make(chan *answered, 1)
	body := map[string]any{"run_id": someRun, "argv": []string{"sh", "-c", "echo >> began; while [ ! -e go ]; do sleep 0.05; done; echo done"}}
	go func() { done <- tg.run(token, "s", body) }()
	eventually(t, "the run", func() bool { return exists(dir + "/began") })
	if detail := toText(tg.run(token, "s", body).object(http.StatusConflict)["detail"]); !strings.Contains(detail, someRun) {
		t.Errorf("%q", detail)
	}
	runs := tg.call(token, http.MethodGet, "/sessions/s/runs", nil).object(http.StatusOK)["runs"].([]any)
	if last := runs[len(runs)-1].(map[string]any); last["run_id"] != someRun || last["running"] != true || last["exit_code"] != nil {
		t.Errorf("%v", last)
	}
	tg.sh(token, "s", "touch go")
	if got := (<-done).object(http.StatusOK); got["stdout"] != "done\n" {
		t.Errorf("%v", got)
	}
	if data, err := os.ReadFile(dir + "/began"); string(data) != "\n" {
		t.Errorf("it ran %d times, %v", len(data), err)
	}
}

func TestRun_ClientThatGoesStopsIt(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	ctx, cancel := context.WithCancel(t.Context())
	body, _ := json.Marshal(map[string]any{"run_id": someRun, "argv": []string{"sh", "-c", "setsid sleep 300 & echo $! > child; sleep 300"}})
	req := tg.request(ctx, token, http.MethodPost, "/sessions/s/run", bytes.NewReader(body))
	gone := make(chan error, 1)
	go func() {
		resp, err := tg.server.Client().Do(req)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	child := pid(t, dir+"/child")
	cancel()
	if err := <-gone; err == nil {
		t.Error("the request was answered")
	}
	eventually(t, "the child's end", func() bool { return !alive(child) })
	eventually(t, "the end in the listing", func() bool {
		runs := tg.call(token, http.MethodGet, "/sessions/s/runs", nil).object(http.StatusOK)["runs"].([]any)
		return runs[len(runs)-1].(map[string]any)["running"] == false
	})
	// As any client does that is unsure.
	tg.call(token, http.MethodPost, "/sessions/s/runs/"+someRun+"/stop", nil).is(http.StatusNoContent)
}

func TestRun_Purge(t *testing.T) {
	for _, files := range []string{"keep", "purge"} {
		t.Run(files, func(t *testing.T) {
			tg := newTestGateway(t)
			token := tg.open("s")
			dir := tg.workDir(token, "s")
			done := make(chan *answered, 1)
			go func() {
				done <- tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "echo $$ > pid; exec sleep 300"}})
			}()
			command := pid(t, dir+"/pid")
			path := "/sessions/s"
			if files == "purge" {
				path += "?purge=true"
			}
			tg.call(token, http.MethodDelete, path, nil).is(http.StatusNoContent)
			if detail := toText((<-done).object(http.StatusGone)["detail"]); detail == "" {
				t.Error("no word of why")
			}
			eventually(t, "the command's end", func() bool { return !alive(command) })
			tg.run(serviceToken, "s", map[string]any{"argv": []string{"true"}}).fails(http.StatusNotFound, "No such session: s")
			tg.fileCall(serviceToken, "s", "stat", dir).fails(http.StatusNotFound, "No such session: s")
		})
	}
}

func TestRun_WorkspaceThatIsGone(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	tg.run(token, "s", map[string]any{"argv": []string{"true"}}).object(http.StatusGone)
	tg.fileCall(token, "s", "stat", dir).object(http.StatusGone)
}

func TestRun_ExecuteTimeout(t *testing.T) {
	tg := newTestGateway(t, func(c *Config) { c.Policy.ExecuteTimeout = time.Second })
	token := tg.open("s")
	for _, asked := range []any{nil, 1000, 1e300} {
		got := tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "echo x; setsid sleep 300 & echo $! > child; sleep 300"}, "timeout_seconds": asked}).object(http.StatusOK)
		if got["timed_out"] != true || got["exit_code"] != nil || got["stdout"] != "x\n" {
			t.Errorf("%v: %v", asked, got)
		}
		if child := pid(t, tg.workDir(token, "s")+"/child"); alive(child) {
			t.Errorf("%v: what called setsid lives on", asked)
		}
	}
}

func TestRun_Output(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	big := tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x"}}).object(http.StatusOK)
	if out := big["stdout"].(string); len(out) != 10_000_000 || big["exit_code"] != 0.0 || big["output_limited"] != false {
		t.Errorf("%d bytes", len(out))
	}
	over := tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "yes out & yes err >&2"}}).object(http.StatusOK)
	if over["output_limited"] != true || over["output_limit"] != float64(10<<20) || over["exit_code"] != nil || over["timed_out"] != false {
		t.Errorf("%v %v %v %v", over["output_limited"], over["output_limit"], over["exit_code"], over["timed_out"])
	}
	for _, stream := range []string{"stdout", "stderr"} {
		if n := len(over[stream].(string)); n != 64<<10 {
			t.Errorf("%d bytes of %s", n, stream)
		}
	}
	began := time.Now()
	child := tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "sleep 60 & echo $! > child; echo done"}}).object(http.StatusOK)
	if child["stdout"] != "done\n" || child["exit_code"] != 0.0 || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", child, time.Since(began))
	}
	if err := syscall.Kill(pid(t, tg.workDir(token, "s")+"/child"), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestRun_Events(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	tg.run(token, "s", map[string]any{"argv": []string{"sh", "-c", "printf 'it'\"'s\"; exit 7"}, "env": map[string]string{"KEY": "s3cret"}}).is(http.StatusOK)
	tg.run(token, "s", map[string]any{"argv": []string{"echo", strings.Repeat("é", 300)}}).is(http.StatusOK)
	tg.run(token, "s", map[string]any{"argv": []string{"sleep", "60"}, "timeout_seconds": 0.1}).is(http.StatusOK)
	tg.fileCall(token, "s", "write", dir+"/f", []byte("c0ntent")...).is(http.StatusNoContent)
	tg.fileCall(token, "s", "read", dir+"/f").is(http.StatusOK)
	tg.fileCall(token, "s", "list", dir).is(http.StatusOK)
	tg.fileCall(token, "s", "read", dir+"/nope").is(http.StatusNotFound)
	tg.fileCall(token, "s", "mkdir", dir+"/f").is(http.StatusBadRequest)
	tg.fileCall(token, "s", "stat", "x").is(http.StatusBadRequest)
	tg.fileCall(token, "s", "remove", dir+"/f").is(http.StatusNoContent)
	type event struct {
		op, target, detail string
		ok                 bool
	}
	want := []event{
		{"run", "/bin/sh -c 'pwd -P'", "exit 0", true},
		{"run", `sh -c 'printf '\''it'\''"'\''s"; exit 7'`, "exit 7", false},
		{"run", "echo '" + strings.Repeat("é", 97) + "…", "exit 0", true},
		{"run", "sleep 60", "timed out", false},
		{"write", dir + "/f", "", true},
		{"read", dir + "/f", "", true},
		{"ls", dir, "", true},
		{"read", dir + "/nope", "not found", false},
		{"mkdir", dir + "/f", "FileExistsError", false},
		{"stat", "x", "ValueError", false},
		{"remove", dir + "/f", "", true},
	}
	var got []any
	eventually(t, "the events", func() bool {
		got = tg.call(token, http.MethodGet, "/sessions/s/events?after=0", nil).object(http.StatusOK)["events"].([]any)
		return len(got) >= len(want)
	})
	text, _ := json.Marshal(got)
	for _, secret := range []string{"s3cret", "c0ntent", "KEY"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s is told: %s", secret, text)
		}
	}
	for i, w := range want {
		e := got[i].(map[string]any)
		if g := (event{e["op"].(string), e["target"].(string), e["detail"].(string), e["ok"].(bool)}); g != w {
			t.Errorf("event %d: %+v\nwant %+v", i, g, w)
		}
		if e["duration_ms"].(float64) < 0 || e["duration_ms"] == 0.0 {
			t.Errorf("event %d took %v ms", i, e["duration_ms"])
		}
	}
}

// A run that is cut may have done anything, so that nobody must take it for one that
// can be sent again.
func TestServeTellsOfARunThatItCuts(t *testing.T) {
	tg := newTestGateway(t, anywhere, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
	dir := tg.workDir(tg.open("s"), "s")
	s := tg.serve()
	answers := make(map[string]chan got)
	for path, body := range map[string]map[string]any{
		"run":  {"argv": []string{"sh", "-c", "touch run; exec sleep 300"}, "run_id": someRun},
		"runs": {"script": "touch runs; exec sleep 300"},
	} {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/sessions/s/"+path, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", jsonType)
		req.Header.Set(tokenHeader, serviceToken)
		answer := make(chan got, 1)
		answers[path] = answer
		go func() {
			text, err := s.ask(req)
			answer <- got{text, err}
		}()
		eventually(t, "the command runs", func() bool { return exists(dir + "/" + path) })
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
	const told = "the gateway ended, and the run with it"
	if a := <-answers["run"]; a.err != nil || !strings.HasPrefix(a.text, "502 ") || !strings.Contains(a.text, told) {
		t.Error(a.text, a.err)
	}
	if a := <-answers["runs"]; a.err != nil || !strings.Contains(a.text, `"type":"ended"`) || !strings.Contains(a.text, `{"status":502,"detail":"`+told+`"}`) {
		t.Error(a.text, a.err)
	}
	runs, err := tg.sessions.Runs(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs[len(runs)-2:] {
		if r.End == nil || r.End.Detail != told {
			t.Errorf("listed: %+v", r)
		}
	}
}

// A write that is cut may have been carried out, which a passing fault has not.
func TestCutOff(t *testing.T) {
	for name, err := range map[string]error{"ended with its context": context.Canceled, "another error": os.ErrNotExist} {
		var wire *wireError
		if is := errors.As(cutOff(err), &wire); is != errors.Is(err, context.Canceled) || is && (wire.status != http.StatusBadGateway || wire.retryAfter != 0) {
			t.Errorf("%s: %v", name, cutOff(err))
		}
	}
}
