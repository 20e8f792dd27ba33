package process

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/test/faults"
)

// sink collects what a logger writes, as JSON records.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *sink) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: s, JSONFormat: true})
}

// records returns what was logged so far.
func (s *sink) records(t testing.TB) []map[string]any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []map[string]any
	for dec := json.NewDecoder(strings.NewReader(s.text.String())); ; {
		var rec map[string]any
		if err := dec.Decode(&rec); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
	}
}

// find waits for records whose message begins so.
func (s *sink) find(t testing.TB, prefix string) []map[string]any {
	t.Helper()
	var found []map[string]any
	poll(t, "a record "+prefix, func() bool {
		found = nil
		for _, rec := range s.records(t) {
			if message, _ := rec["@message"].(string); strings.HasPrefix(message, prefix) {
				found = append(found, rec)
			}
		}
		return len(found) > 0
	})
	return found
}

func TestGarbageOnStderrIsKeptAndHarmless(t *testing.T) {
	var logged sink
	cfg := testConfig(t, faults.Good)
	cfg.Logger = logged.logger()
	p := start(t, cfg)
	lines := []string{`{"@message": 1}`, `{"@level":[]}`, `[]`, "bad \xff UTF-8", "NUL \x00 in it", `{"@level":"info","@message":"ok","@timestamp":7}`}
	for _, line := range lines {
		mustDo(t, p, "stderr/"+line)
	}
	for _, want := range []string{`{"@message": 1}`, `{"@level":[]}`, `[]`, "bad \ufffd UTF-8", `NUL \x00 in it`, "ok"} {
		if found := logged.find(t, want); found[0]["@level"] != "info" {
			t.Errorf("%s: %v", want, found)
		}
	}
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
	if got := p.Stderr(); got[0] != lines[0] || got[3] != lines[3] || got[5] != "[INFO] ok" {
		t.Errorf("last lines %q", got)
	}
}

func TestLongLineIsOneRecord(t *testing.T) {
	var logged sink
	cfg := testConfig(t, faults.Good)
	cfg.Logger = logged.logger()
	p := start(t, cfg)
	mustDo(t, p, `stderr/{"@level":"error","@message":"long `+strings.Repeat("x", 1<<20)+`"}`)
	mustDo(t, p, "stderr/the next")
	logged.find(t, "the next")
	found := logged.find(t, "long ")
	if len(found) != 1 || found[0]["@level"] != "error" || found[0]["truncated"] != true {
		t.Errorf("%d records, the first at %v, truncated %v", len(found), found[0]["@level"], found[0]["truncated"])
	}
	if size := len(found[0]["@message"].(string)); size < maxLine/2 || size > maxLine {
		t.Errorf("%d bytes of it", size)
	}
}

// blocked is a log sink that takes nothing until it is opened.
type blocked struct {
	open chan struct{}
	sink
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.open
	return b.sink.Write(p)
}

func TestBlockedLoggerNeverBlocksThePlugin(t *testing.T) {
	logged := &blocked{open: make(chan struct{})}
	cfg := testConfig(t, faults.Good)
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: logged, JSONFormat: true})
	p := start(t, cfg)
	mustDo(t, p, "flood-stderr/100000/200") // returns when the plugin has written it all
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
	poll(t, "drops counted", func() bool { return p.Dropped() > 90_000 })
	close(logged.open)
	told := logged.find(t, "plugin log records dropped")
	if n, _ := told[0]["dropped"].(float64); n == 0 {
		t.Errorf("told %v", told[0])
	}
}

// A logger that never comes back delays the end of the plugin a little, and no
// more.
func TestBlockedLoggerDoesNotHoldTheEnd(t *testing.T) {
	logged := &blocked{open: make(chan struct{})}
	defer close(logged.open)
	cfg := testConfig(t, faults.Good)
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: logged})
	p := start(t, cfg)
	mustDo(t, p, "stderr/stuck")
	began := time.Now()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFloodedStdoutBlocksNothing(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	mustDo(t, p, "flood-stdout/10/70000")
	mustDo(t, p, "flood-stdout/1/20000000")
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
}

func TestLastLinesAreTheLastTwenty(t *testing.T) {
	p := start(t, testConfig(t, faults.Good))
	for i := range 50 {
		mustDo(t, p, fmt.Sprintf("stderr/line %d %s", i, strings.Repeat("y", 3000)))
	}
	poll(t, "the last line", func() bool {
		last := p.Stderr()
		return len(last) == tailLines && strings.HasPrefix(last[tailLines-1], "line 49 ")
	})
	if last := p.Stderr(); !strings.HasPrefix(last[0], "line 30 ") || len(last[0]) > tailLine+100 {
		t.Errorf("the first of %d is %.50q, %d bytes", len(last), last[0], len(last[0]))
	}
}

func TestRedact(t *testing.T) {
	var logged sink
	cfg := testConfig(t, faults.Good)
	cfg.Logger = logged.logger()
	cfg.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	p := start(t, cfg)
	mustDo(t, p, "stderr/password hunter2")
	mustDo(t, p, `stderr/{"@level":"info","@message":"as JSON","password":"hunter2"}`)
	if rec := logged.find(t, "as JSON"); rec[0]["password"] != "[redacted]" {
		t.Errorf("%v", rec)
	}
	logged.find(t, "password [redacted]")
	if last := strings.Join(p.Stderr(), "\n"); strings.Contains(last, "hunter2") {
		t.Errorf("last lines %s", last)
	}
}

// A start that takes long is told, with what it waits for.
func TestSlowStartIsTold(t *testing.T) {
	var logged sink
	cfg := testConfig(t, faults.Slow)
	cfg.Logger = logged.logger()
	cfg.SlowStart = 200 * time.Millisecond
	start(t, cfg)
	if rec := logged.find(t, "plugin is slow to start"); rec[0]["waiting_for"] != "the handshake line on the plugin's stdout" || rec[0]["pid"] == 0 {
		t.Errorf("%v", rec)
	}
}
