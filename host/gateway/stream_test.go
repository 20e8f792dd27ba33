//go:build unix

package gateway

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

func TestStream(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	for _, accept := range []string{"", sseType} {
		t.Run(accept, func(t *testing.T) {
			tg := &testGateway{Gateway: tg.Gateway, t: t, server: tg.server}
			s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script(`printf 'a\377b'; printf err >&2; exit 3`), "Accept", accept)
			if id := s.next()["run_id"].(string); len(id) != 32 {
				t.Errorf("the run is %q", id)
			}
			got := s.rest(0, 0)
			if string(got.stdout) != "a\xffb" || string(got.stderr) != "err" || got.ended["exit_code"] != 3.0 || got.ended["error"] != nil {
				t.Errorf("%q %q %v", got.stdout, got.stderr, got.ended)
			}
			if accept == sseType && s.ids[len(s.ids)-1] != "3-3" {
				t.Errorf("the last id is %s", s.ids[len(s.ids)-1])
			}
		})
	}
}

func TestStream_Ends(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	for _, test := range []struct {
		name string
		body map[string]any
		want map[string]any
	}{
		{"timeout", script("echo x; sleep 60", "timeout_seconds", 0.2), map[string]any{"timed_out": true, "exit_code": nil}},
		{"limit", script("yes", "output_limit", 1000), map[string]any{"output_limited": true, "output_limit": 1000.0, "exit_code": nil}},
		{"missing", map[string]any{"argv": []string{"no-such-program"}, "env": map[string]any{"PATH": "/usr/bin:/bin"}}, map[string]any{"exit_code": 127.0}},
		{"dir", script("[ $(pwd) = / ]", "dir", "/"), map[string]any{"exit_code": 0.0}},
	} {
		got := tg.stream(token, http.MethodPost, "/sessions/s/runs", test.body).rest(0, 0)
		for key, want := range test.want {
			if got.ended[key] != want {
				t.Errorf("%s: %s is %v, want %v", test.name, key, got.ended[key], want)
			}
		}
	}
	dir := tg.workDir(token, "s")
	tg.call(token, http.MethodPost, "/sessions/s/runs", script("true", "dir", "none")).failsAt(http.StatusNotFound, "FileNotFoundError")
	tg.sh(token, "s", "touch file")
	tg.call(token, http.MethodPost, "/sessions/s/runs", script("true", "dir", dir+"/file")).failsAt(http.StatusBadRequest, "NotADirectoryError")
	tg.call(token, http.MethodPost, "/sessions/s/runs", script("true", "argv", []string{"true"})).invalid("value_error", "body")
	tg.call(token, http.MethodPost, "/sessions/s/runs", map[string]any{}).invalid("value_error", "body")
	tg.call(token, http.MethodPost, "/sessions/none/runs", script("true")).is(http.StatusUnauthorized)
	tg.call(serviceToken, http.MethodPost, "/sessions/none/runs", script("true")).fails(http.StatusNotFound, "No such session: none")

	s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script("echo x; sleep 60", "run_id", someRun))
	s.next()
	s.next()
	tg.call(token, http.MethodPost, "/sessions/s/runs/"+someRun+"/stop", nil).is(http.StatusNoContent)
	if got := s.rest(2, 0); got.ended["stopped"] != true || got.ended["exit_code"] != 143.0 {
		t.Errorf("a stop: %v", got.ended)
	}
	s = tg.stream(token, http.MethodPost, "/sessions/s/runs", script("echo x; sleep 60"))
	s.next()
	s.next()
	tg.call(token, http.MethodDelete, "/sessions/s?purge=true", nil).is(http.StatusNoContent)
	if got := s.rest(2, 0); got.ended["error"] == nil || got.ended["error"].(map[string]any)["status"] != float64(http.StatusGone) {
		t.Errorf("a purge: %v", got.ended)
	}
}

// Everything arrives, however much more than is held, and however slowly it is read.
func TestStream_LargeAndSlow(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	const size = 24 << 20
	s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script("head -c 25165824 /dev/zero | tr '\\0' x; echo end >&2"))
	s.next()
	s.next()
	first := s.next()
	if first["type"] != "stdout" {
		t.Fatalf("%v", first)
	}
	// The command waits meanwhile, and nobody else does.
	tg.sh(token, "s", "true")
	resumed := s.rest(int64(first["offset"].(float64))+int64(len(toText(first["text"]))), 0)
	if got := int64(first["offset"].(float64)) + int64(len(toText(first["text"]))+len(resumed.stdout)); got != size || string(resumed.stderr) != "end\n" || resumed.missing != 0 {
		t.Errorf("%d bytes, want %d; %q", got, size, resumed.stderr)
	}
}

func TestStream_ClientThatGoes(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	for _, command := range []string{"sleep 300", "yes"} { // silent, and waiting for its client
		s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script("rm -f pid; echo $$ > pid; "+command))
		s.next()
		n := pid(t, dir+"/pid")
		s.cancel()
		eventually(t, "the end of "+command, func() bool { return !alive(n) })
		if err := os.Remove(dir + "/pid"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the runs' end", func() bool {
		runs := tg.call(token, http.MethodGet, "/sessions/s/runs", nil).object(http.StatusOK)["runs"].([]any)
		for _, r := range runs {
			if r.(map[string]any)["running"] == true {
				return false
			}
		}
		return true
	})
}

// A client that does not read holds up neither a stop nor a timeout (contract C10).
func TestStream_ClientThatDoesNotRead(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	for _, by := range []string{"stop", "timeout"} {
		run := newRunID()
		body := script("echo $$ > pid; exec yes", "run_id", run)
		if by == "timeout" {
			body["timeout_seconds"] = 1
		}
		s := tg.stream(token, http.MethodPost, "/sessions/s/runs", body)
		n := pid(t, dir+"/pid")
		if by == "stop" {
			tg.call(token, http.MethodPost, "/sessions/s/runs/"+run+"/stop", nil).is(http.StatusNoContent)
		}
		eventually(t, "the command's end", func() bool { return !alive(n) })
		got := s.rest(0, 0)
		if got.ended == nil || got.ended["stopped"] != (by == "stop") || got.ended["timed_out"] != (by == "timeout") {
			t.Errorf("%s: %v", by, got.ended)
		}
		if err := os.Remove(dir + "/pid"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStream_Background(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	run := tg.call(token, http.MethodPost, "/sessions/s/runs", script("echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; echo three >&2; exit 4", "background", true)).object(http.StatusAccepted)["run_id"].(string)
	output := "/sessions/s/runs/" + run + "/output"
	follower := tg.stream(token, http.MethodGet, output, nil)
	if first := follower.next(); first["text"] != "one\n" {
		t.Errorf("%v", first)
	}
	now := tg.stream(token, http.MethodGet, output+"?follow=false", nil).rest(0, 0)
	if string(now.stdout) != "one\n" || now.ended != nil {
		t.Errorf("%q %v", now.stdout, now.ended)
	}
	tg.call(token, http.MethodGet, output+"?stdout_offset=5", nil).is(http.StatusConflict)
	tg.call(token, http.MethodGet, output+"?stdout_offset=-1", nil).is(http.StatusUnprocessableEntity)
	tg.call(tg.open("other"), http.MethodGet, output, nil).is(http.StatusUnauthorized)
	tg.fileCall(token, "s", "write", dir+"/go").is(http.StatusNoContent)
	got := follower.rest(4, 0)
	if string(got.stdout) != "two\n" || string(got.stderr) != "three\n" || got.ended["exit_code"] != 4.0 {
		t.Errorf("%q %q %v", got.stdout, got.stderr, got.ended)
	}
	// Once more, from where one was, after the end.
	again := tg.stream(token, http.MethodGet, output+"?stdout_offset=2&stderr_offset=6", nil).rest(2, 6)
	if string(again.stdout) != "e\ntwo\n" || len(again.stderr) != 0 || again.ended["exit_code"] != 4.0 {
		t.Errorf("%q %q %v", again.stdout, again.stderr, again.ended)
	}
	events := tg.stream(token, http.MethodGet, output, nil, "Accept", sseType, "Last-Event-ID", "4-0").rest(4, 0)
	if string(events.stdout) != "two\n" || events.ended == nil {
		t.Errorf("%q %v", events.stdout, events.ended)
	}
	runs := tg.call(token, http.MethodGet, "/sessions/s/runs", nil).object(http.StatusOK)["runs"].([]any)
	if last := runs[len(runs)-1].(map[string]any); last["run_id"] != run || last["background"] != true || last["exit_code"] != 4.0 {
		t.Errorf("%v", last)
	}
	tg.call(token, http.MethodGet, "/sessions/s/runs/"+someRun+"/output", nil).failsAt(http.StatusNotFound, "FileNotFoundError")
	// A session of the same name is another one.
	tg.call(serviceToken, http.MethodDelete, "/sessions/s?purge=true", nil).is(http.StatusNoContent)
	token = tg.open("s")
	tg.call(token, http.MethodGet, output, nil).failsAt(http.StatusNotFound, "FileNotFoundError")
}

// Of a run that nobody waits for the newest output is held, and a gap is told.
func TestStream_Gap(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	run := tg.call(token, http.MethodPost, "/sessions/s/runs", script("echo first >&2; head -c 5000000 /dev/zero | tr '\\0' x; touch written; while [ ! -e go ]; do sleep 0.05; done", "background", true)).object(http.StatusAccepted)["run_id"].(string)
	eventually(t, "the output", func() bool { return exists(dir + "/written") })
	output := "/sessions/s/runs/" + run + "/output"
	held := func() collected {
		return tg.stream(token, http.MethodGet, output+"?follow=false", nil).rest(0, 0)
	}
	all := func(c collected) bool { return c.missing+int64(len(c.stdout)+len(c.stderr)) == 5_000_006 }
	eventually(t, "all of it in the log", func() bool { return all(held()) })
	got := held() // nothing is added any more
	if !all(got) {
		t.Errorf("%d bytes are missing, %d and %d are there", got.missing, len(got.stdout), len(got.stderr))
	}
	if len(got.stdout) > streamWindow || len(got.stdout) < streamWindow/2 || len(got.stderr) != 0 {
		t.Errorf("%d bytes are held, and %d", len(got.stdout), len(got.stderr))
	}
	tg.call(token, http.MethodPost, "/sessions/s/runs/"+run+"/stop", nil).is(http.StatusNoContent)
}

// A run of the protocol is followed too.
func TestStream_FollowRun(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	done := make(chan *answered, 1)
	go func() {
		done <- tg.run(token, "s", map[string]any{"run_id": someRun, "argv": []string{"sh", "-c", "echo one; touch began; while [ ! -e go ]; do sleep 0.05; done; echo two"}})
	}()
	eventually(t, "the run", func() bool { return exists(dir + "/began") })
	follower := tg.stream(token, http.MethodGet, "/sessions/s/runs/"+someRun+"/output", nil)
	follower.next()
	tg.fileCall(token, "s", "write", dir+"/go").is(http.StatusNoContent)
	if got := follower.rest(4, 0); string(got.stdout) != "two\n" || got.ended["exit_code"] != 0.0 {
		t.Errorf("%q %v", got.stdout, got.ended)
	}
	if out := (<-done).object(http.StatusOK)["stdout"]; out != "one\ntwo\n" {
		t.Errorf("%q", out)
	}
}

// What another gateway runs is followed there.
func TestStream_OfAnotherGateway(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	done, err := tg.sessions.RunBegin(t.Context(), session.RunInfo{Session: "s", ID: someRun, Args: []string{"true"}}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	run := "/sessions/s/runs/" + someRun
	tg.call(token, http.MethodGet, run+"/output", nil).is(http.StatusConflict)
	tg.call(token, http.MethodPost, run+"/signal", map[string]any{"signal": "TERM"}).is(http.StatusConflict)
	tg.call(token, http.MethodPost, run+"/stdin", []byte("x")).is(http.StatusConflict)
	done(session.RunEnd{Detail: "exit 0"})
	tg.call(token, http.MethodGet, run+"/output", nil).failsAt(http.StatusNotFound, "FileNotFoundError")
}

func TestStream_Stdin(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script("cat", "stdin", true, "run_id", someRun))
	s.next()
	write := func(query, data string) *answered {
		return tg.call(token, http.MethodPost, "/sessions/s/runs/"+someRun+"/stdin"+query, []byte(data))
	}
	state := func(a *answered, offset float64, ended bool) {
		t.Helper()
		if got := a.object(http.StatusOK); got["offset"] != offset || got["ended"] != ended {
			t.Errorf("%v, want %v %v", got, offset, ended)
		}
	}
	state(write("", "a\xff\x00b"), 4, false)
	if echo := s.next(); echo["data_b64"] == nil {
		t.Errorf("%v", echo)
	}
	state(write("?offset=2", "\x00bcd"), 6, false) // the first two were there
	state(write("?offset=0", "a\xff"), 6, false)
	write("?offset=7", "x").is(http.StatusConflict)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	state(write("?offset=6&end=true", big), float64(6+len(big)), true)
	got := s.rest(4, 0)
	if string(got.stdout) != "cd"+big || got.ended["exit_code"] != 0.0 {
		t.Errorf("%d bytes, %v", len(got.stdout), got.ended)
	}
	write("", "x").failsAt(http.StatusNotFound, "FileNotFoundError")

	s = tg.stream(token, http.MethodPost, "/sessions/s/runs", script("echo x; sleep 60", "run_id", someRun))
	s.next()
	write("", "x").is(http.StatusConflict) // it was started without
	s.cancel()
}

// A command that does not read holds its writer up, until one of them goes.
func TestStream_StdinThatNobodyReads(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	for _, last := range []string{"the run", "the client"} {
		run := newRunID()
		tg.call(token, http.MethodPost, "/sessions/s/runs", script("exec sleep 300", "stdin", true, "background", true, "run_id", run)).is(http.StatusAccepted)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		data := make([]byte, 8<<20)
		req := tg.request(ctx, token, http.MethodPost, "/sessions/s/runs/"+run+"/stdin", bytes.NewReader(data))
		answers := make(chan int, 1)
		go func() {
			resp, err := tg.server.Client().Do(req)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
		select {
		case status := <-answers:
			t.Fatalf("it was taken: %d", status)
		case <-time.After(200 * time.Millisecond):
		}
		if last == "the client" {
			cancel()
			<-answers
			tg.call(token, http.MethodPost, "/sessions/s/runs/"+run+"/stop", nil).is(http.StatusNoContent)
			continue
		}
		tg.call(token, http.MethodPost, "/sessions/s/runs/"+run+"/stop", nil).is(http.StatusNoContent)
		if status := <-answers; status != http.StatusConflict && status != 0 { // 0: it was still sending
			t.Errorf("%d", status)
		}
	}
}

func TestStream_Signal(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	s := tg.stream(token, http.MethodPost, "/sessions/s/runs", script(`trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done`, "run_id", someRun))
	s.next()
	s.next()
	signal := func(name string) *answered {
		return tg.call(token, http.MethodPost, "/sessions/s/runs/"+someRun+"/signal", map[string]any{"signal": name})
	}
	signal("SIGTERM").is(http.StatusBadRequest)
	signal("term").invalid("string_pattern_mismatch", "body", "signal")
	signal("USR1").is(http.StatusNoContent)
	if got := s.rest(6, 0); string(got.stdout) != "got\n" || got.ended["exit_code"] != 5.0 {
		t.Errorf("%q %v", got.stdout, got.ended)
	}
	signal("USR1").failsAt(http.StatusNotFound, "FileNotFoundError")
}

// Runs in the background end with the gateway, and those who follow leave.
func TestStream_Shutdown(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	run := tg.call(token, http.MethodPost, "/sessions/s/runs", script("echo $$ > pid; exec sleep 300", "background", true)).object(http.StatusAccepted)["run_id"].(string)
	n := pid(t, dir+"/pid")
	follower := tg.stream(token, http.MethodGet, "/sessions/s/runs/"+run+"/output", nil)
	tg.beginDrain()
	if got := follower.rest(0, 0); got.ended != nil {
		t.Errorf("%v", got.ended)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := tg.runs.shutdown(ctx); err != nil {
		t.Error(err)
	}
	eventually(t, "its end", func() bool { return !alive(n) })
	tg.call(token, http.MethodPost, "/sessions/s/runs", script("true", "background", true)).is(http.StatusServiceUnavailable)
}
