//go:build unix

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// eventStream is a run's stream as a client reads it.
type eventStream struct {
	t      testing.TB
	resp   *http.Response
	lines  *bufio.Reader
	sse    bool
	ids    []string
	cancel context.CancelFunc
}

// stream asks for a stream. It is closed when the test ends.
func (tg *testGateway) stream(token, method, path string, body any, header ...string) *eventStream {
	tg.t.Helper()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			tg.t.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	ctx, cancel := context.WithCancel(tg.t.Context())
	tg.t.Cleanup(cancel)
	req := tg.request(ctx, token, method, path, reader)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := tg.server.Client().Do(req)
	if err != nil {
		tg.t.Fatal(err)
	}
	tg.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		tg.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, data)
	}
	return &eventStream{t: tg.t, resp: resp, lines: bufio.NewReader(resp.Body), sse: resp.Header.Get("Content-Type") == sseType, cancel: cancel}
}

// next is the next event, nil at the end. Signs of life are passed over.
func (s *eventStream) next() map[string]any {
	s.t.Helper()
	kind := ""
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			if line != "" {
				s.t.Fatalf("half a line: %q", line)
			}
			return nil
		}
		if s.sse {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch field {
			case "event":
				kind = value
				continue
			case "id":
				s.ids = append(s.ids, value)
				continue
			case "":
				continue
			case "data":
				line = value
			default:
				s.t.Fatalf("a field that nobody knows: %q", line)
			}
		}
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			s.t.Fatalf("%v: %q", err, line)
		}
		if s.sse && event["type"] != kind {
			s.t.Errorf("%v is named %q", event, kind)
		}
		if event["type"] != "alive" {
			return event
		}
	}
}

// collected is what came of a stream.
type collected struct {
	stdout, stderr []byte
	missing        int64
	ended          map[string]any
}

// rest reads a stream to its end, and checks that nothing of it is missing but gaps
// that are told, from the offsets on.
func (s *eventStream) rest(stdout, stderr int64) collected {
	s.t.Helper()
	var c collected
	at := map[string]int64{"stdout": stdout, "stderr": stderr}
	for event := s.next(); event != nil; event = s.next() {
		kind := event["type"].(string)
		switch kind {
		case "started":
			continue
		case "ended":
			if c.ended != nil {
				s.t.Error("it ended twice")
			}
			c.ended = event
			continue
		case "gap":
			stream := event["stream"].(string)
			missing := int64(event["bytes"].(float64))
			c.missing += missing
			if at[stream] += missing; at[stream] != int64(event["offset"].(float64)) {
				s.t.Errorf("%v, at offset %d", event, at[stream])
			}
			continue
		}
		if offset := int64(event["offset"].(float64)); offset != at[kind] {
			s.t.Errorf("%s at %d, want %d", kind, offset, at[kind])
		}
		data := []byte(toText(event["text"]))
		if encoded, ok := event["data_b64"].(string); ok {
			var err error
			if data, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				s.t.Error(err)
			}
		}
		at[kind] += int64(len(data))
		if kind == "stdout" {
			c.stdout = append(c.stdout, data...)
		} else {
			c.stderr = append(c.stderr, data...)
		}
	}
	return c
}

func script(text string, more ...any) map[string]any {
	body := map[string]any{"script": text}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}
