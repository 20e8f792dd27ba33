package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// What a stream of events is written as.
const (
	ndjsonType = "application/x-ndjson"
	sseType    = "text/event-stream"
)

// aliveInterval is between two signs of life in a stream where nothing happens:
// less than what proxies take for a connection that is dead, and often enough that
// a client that is gone is noticed.
const aliveInterval = 15 * time.Second

// The events of a run's stream.
type (
	startedEvent struct {
		Type  string `json:"type" enum:"started"`
		RunID string `json:"run_id"`
	}
	// outputEvent is a piece of output: text if it is UTF-8, else its bytes.
	outputEvent struct {
		Type   string  `json:"type" enum:"stdout,stderr"`
		Offset int64   `json:"offset" doc:"Of its first byte, in its stream"`
		Text   *string `json:"text,omitempty" doc:"What was written, if that is UTF-8"`
		Data   []byte  `json:"data_b64,omitempty" doc:"What was written, in base64, if that is not UTF-8"`
	}
	// gapEvent is output that is not kept any more.
	gapEvent struct {
		Type   string `json:"type" enum:"gap"`
		Stream string `json:"stream" enum:"stdout,stderr"`
		Offset int64  `json:"offset" doc:"Where what is kept begins"`
		Bytes  int64  `json:"bytes" doc:"How much is missing before that"`
	}
	aliveEvent struct {
		Type string `json:"type" enum:"alive"`
	}
	// endedEvent is the last one.
	endedEvent struct {
		Type          string            `json:"type" enum:"ended"`
		ExitCode      *int              `json:"exit_code" doc:"Null if it has none"`
		TimedOut      bool              `json:"timed_out"`
		OutputLimited bool              `json:"output_limited"`
		OutputLimit   *int64            `json:"output_limit"`
		Stopped       bool              `json:"stopped" doc:"By a stop"`
		Error         orNull[endedFail] `json:"error" doc:"What an answer would have been, if it failed"`
	}
	endedFail struct {
		Status int `json:"status"`
		Detail any `json:"detail"`
	}
)

// eventTypes are all of them.
var eventTypes = []reflect.Type{
	reflect.TypeFor[startedEvent](), reflect.TypeFor[outputEvent](), reflect.TypeFor[gapEvent](),
	reflect.TypeFor[aliveEvent](), reflect.TypeFor[endedEvent](),
}

// eventsResponse describes a stream of them.
func eventsResponse(api huma.API) *huma.Response {
	schema := &huma.Schema{}
	for _, t := range eventTypes {
		schema.OneOf = append(schema.OneOf, api.OpenAPI().Components.Schemas.Schema(t, true, ""))
	}
	return &huma.Response{
		Description: "The run's events, one a line, or as server-sent events where the client accepts those",
		Content: map[string]*huma.MediaType{
			ndjsonType: {Schema: schema},
			sseType:    {Schema: &huma.Schema{Type: huma.TypeString, Description: "Events named after their type, with the same JSON as data"}},
		},
	}
}

func ended(o runOutcome) endedEvent {
	e := endedEvent{Type: "ended", ExitCode: o.exitCode, TimedOut: o.timedOut, OutputLimited: o.limited, Stopped: o.stopped}
	if o.limited {
		e.OutputLimit = &o.limit
	}
	var wire *wireError
	switch err := mapError(o.err); {
	case err == nil:
	case errors.As(err, &wire):
		e.Error.value = &endedFail{wire.status, wire.detail}
	default:
		e.Error.value = &endedFail{http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError)}
	}
	return e
}

// eventWriter writes events to a client.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sse     bool
	at      [2]int64 // how far the client is, for the ids of server-sent events
	buf     bytes.Buffer
}

// startEvents begins an answer that is a stream.
func startEvents(ctx huma.Context, sse bool) *eventWriter {
	_, w := humago.Unwrap(ctx)
	contentType := ndjsonType
	if sse {
		contentType = sseType
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	w.WriteHeader(http.StatusOK)
	return &eventWriter{w: w, control: http.NewResponseController(w), sse: sse}
}

// wantsSSE says what a client accepts.
func wantsSSE(accept string) bool { return strings.Contains(accept, sseType) }

func (e *eventWriter) send(kind string, event any) error {
	e.buf.Reset()
	if e.sse {
		fmt.Fprintf(&e.buf, "event: %s\nid: %d-%d\ndata: ", kind, e.at[stdoutStream], e.at[stderrStream])
	}
	encoder := json.NewEncoder(&e.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(event); err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	if e.sse {
		e.buf.WriteByte('\n')
	}
	_, err := e.w.Write(e.buf.Bytes())
	return err
}

func (e *eventWriter) piece(p piece) error {
	if p.gap > 0 {
		e.at[p.stream] = p.offset
		return e.send("gap", gapEvent{"gap", p.stream.String(), p.offset, p.gap})
	}
	e.at[p.stream] = p.offset + int64(len(p.data))
	event := outputEvent{Type: p.stream.String(), Offset: p.offset}
	if utf8.Valid(p.data) {
		text := string(p.data)
		event.Text = &text
	} else {
		event.Data = p.data
	}
	return e.send(event.Type, event)
}

func (e *eventWriter) flush() error { return e.control.Flush() }

// relay sends what a follower gets, until the end of the run's output, of ctx, or
// quit. Without stay, it ends when there is nothing more for now.
func (e *eventWriter) relay(ctx context.Context, f *follower, stay bool, quit <-chan struct{}) (followed, error) {
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		p, state, change := f.read()
		switch {
		case state == gotPiece:
			if err := e.piece(p); err != nil {
				return state, err
			}
			continue
		case state == atEnd || !stay:
			return state, nil
		}
		if err := e.flush(); err != nil {
			return state, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return state, ctx.Err()
		case <-quit:
			return state, nil
		case <-alive.C:
			if err := e.send("alive", aliveEvent{"alive"}); err != nil {
				return state, err
			}
		}
	}
}

// parseEventID reads the id of a server-sent event.
func parseEventID(id string) (stdout, stderr int64, ok bool) {
	_, err := fmt.Sscanf(id, "%d-%d", &stdout, &stderr)
	return stdout, stderr, err == nil && id == fmt.Sprintf("%d-%d", stdout, stderr)
}
