package faults_test

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/test/faults"
)

// sink is a log that can be read while it is written, and that can be blocked.
type sink struct {
	blocked chan struct{} // nil, or closed when it takes something

	mu   sync.Mutex
	text strings.Builder
}

func (s *sink) Write(b []byte) (int, error) {
	if s.blocked != nil {
		<-s.blocked
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *sink) configure(c *host.Config) {
	c.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: s, JSONFormat: true})
}

// records are those of one message so far.
func (s *sink) records(t testing.TB, message string) (list []map[string]any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for dec := json.NewDecoder(strings.NewReader(s.text.String())); ; {
		var rec map[string]any
		if err := dec.Decode(&rec); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if text, _ := rec["@message"].(string); strings.HasPrefix(text, message) {
			list = append(list, rec)
		}
	}
}

// Whatever a plugin writes, the host lives, the line is kept as it is, and other
// providers answer.
func TestLogLinesThatPanicHosts(t *testing.T) {
	var log sink
	h := newHost(t, []string{faults.Good, faults.Lifeline}, log.configure)
	odd, other := open(t, h, faults.Good), open(t, h, faults.Lifeline)
	for line, kept := range map[string]string{
		`{"@message":1}`:          `{"@message":1}`,
		`{"@message":{"a":[]}}`:   `{"@message":{"a":[]}}`,
		`{"@level":[]}`:           `{"@level":[]}`,
		`{"@timestamp":[],"@a":`:  `{"@timestamp":[],"@a":`,
		`[]`:                      `[]`,
		"NUL \x00 and more":       `NUL \x00 and more`,
		"bad \xff\xfe UTF-8":      "bad \ufffd UTF-8",
		"\x1b[31m a terminal's":   `\x1b[31m a terminal's`,
		strings.Repeat("[", 5000): strings.Repeat("[", 5000),
	} {
		mustAsk(t, odd, "stderr-hex/"+hex.EncodeToString([]byte(line)))
		poll(t, "the record of "+line, func() bool { return len(log.records(t, kept)) > 0 })
		if got := mustAsk(t, other, "ping"); got != "pong" {
			t.Errorf("after %q: %q", line, got)
		}
	}
	if st := status(t, h, faults.Good); st.Restarts != 0 || st.State != "running" {
		t.Errorf("%+v", st)
	}
}

// A log that takes nothing for 10 s keeps no plugin from answering, and what was
// lost is counted.
func TestABlockedLogBlocksNoPlugin(t *testing.T) {
	t.Parallel()
	log := sink{blocked: make(chan struct{})}
	h := newHost(t, []string{faults.Good}, log.configure)
	ws := open(t, h, faults.Good)
	for over := time.After(10 * time.Second); ; { // it is time that is tested
		mustAsk(t, ws, "flood-stderr/5000/200")
		if got := mustAsk(t, ws, "ping"); got != "pong" {
			t.Errorf("ping: %q", got)
		}
		select {
		case <-over:
		default:
			continue
		}
		break
	}
	close(log.blocked)
	poll(t, "drops are told", func() bool {
		told := log.records(t, "plugin log records dropped")
		if len(told) == 0 {
			return false
		}
		n, _ := told[0]["dropped"].(float64)
		return n > 1000
	})
}

// What a plugin prints on its own descriptor 1 after the handshake reaches nobody's
// call.
func TestLongLinesOnStdoutDisturbNoCall(t *testing.T) {
	h := newHost(t, []string{faults.Good})
	ws := open(t, h, faults.Good)
	for range 3 {
		mustAsk(t, ws, "flood-stdout/10/71680")
		if got := mustAsk(t, ws, "ping"); got != "pong" {
			t.Errorf("ping: %q", got)
		}
	}
	if st := status(t, h, faults.Good); st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
}

// One line of 1 MiB is one record, of its own level, and says that it was cut.
func TestAHugeLogLineIsOneRecord(t *testing.T) {
	var log sink
	h := newHost(t, []string{faults.Good}, log.configure)
	ws := open(t, h, faults.Good)
	mustAsk(t, ws, `stderr/{"@level":"error","@message":"huge `+strings.Repeat("x", 1<<20)+`"}`)
	mustAsk(t, ws, "stderr/what follows")
	poll(t, "what follows", func() bool { return len(log.records(t, "what follows")) == 1 })
	found := log.records(t, "huge xxx")
	if len(found) != 1 || found[0]["@level"] != "error" || found[0]["truncated"] != true {
		t.Errorf("%d records", len(found))
	}
	if rest := log.records(t, "xxx"); len(rest) > 0 {
		t.Errorf("its rest became %d records", len(rest))
	}
}
