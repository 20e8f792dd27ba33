package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/berth-dev/berth/shared/workspace"
)

// streamWindow is as much output of a run as is held for those who follow it. A
// command whose client does not read waits after that.
const streamWindow = 1 << 20

// startRequest is a command to run with its output streamed.
type startRequest struct {
	_              struct{}          `json:"-" additionalProperties:"true"`
	Argv           []string          `json:"argv,omitempty" nullable:"true" doc:"The program and its arguments, passed literally"`
	Script         string            `json:"script,omitempty" doc:"Instead of argv: run by /bin/sh"`
	Dir            string            `json:"dir,omitempty" doc:"Where it starts; relative to the working directory"`
	Env            map[string]string `json:"env,omitempty" doc:"Variables for this command, over the workspace's own"`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" nullable:"true" exclusiveMinimum:"0" doc:"As of run"`
	RunID          *string           `json:"run_id,omitempty" nullable:"true" pattern:"^[0-9a-f]{32}$" doc:"The client's own name of the run; without one it gets one"`
	OutputLimit    *int64            `json:"output_limit,omitempty" nullable:"true" minimum:"1" doc:"When the command is stopped, in bytes of both streams together; without one it may write without end"`
	Stdin          bool              `json:"stdin,omitempty" doc:"Leave stdin open for the calls that write to it; else it is at its end"`
	Background     bool              `json:"background,omitempty" doc:"Answer at once, and let the command go on, until it ends or this gateway does"`
}

// startedInBackground is the answer for a run whose output nobody waits for.
type startedInBackground struct {
	RunID string `json:"run_id"`
}

// inputState is how far stdin is.
type inputState struct {
	Offset int64 `json:"offset" doc:"How many bytes were handed to the command so far"`
	Ended  bool  `json:"ended" doc:"Whether its end was too"`
}

type signalRequest struct {
	_      struct{} `json:"-" additionalProperties:"true"`
	Signal string   `json:"signal" pattern:"^[A-Z][A-Z0-9]{0,14}([+-][0-9]{1,2})?$" doc:"A POSIX name without SIG, such as TERM"`
}

// streamed is an answer that is written as it comes.
type streamed struct{ Body func(huma.Context) }

// rawRequest lets a handler read the body as it comes.
type rawRequest struct{ ctx huma.Context }

// Resolve is called before the handler.
func (r *rawRequest) Resolve(ctx huma.Context) []error {
	r.ctx = ctx
	return nil
}

func (r *rawRequest) unwrap() (*http.Request, http.ResponseWriter) { return humago.Unwrap(r.ctx) }

// rawBody describes a body of bytes.
func rawBody(required bool, doc string) *huma.RequestBody {
	return &huma.RequestBody{
		Required: required, Description: doc,
		Content: map[string]*huma.MediaType{bytesType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}
}

// bytesType is the content type of files.
const bytesType = "application/octet-stream"

func registerStream(g *Gateway) {
	inBackground := g.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[startedInBackground](), true, "")
	register(g, huma.Operation{
		OperationID: "start-run", Method: http.MethodPost, Path: "/sessions/{session_id}/runs", Tags: []string{tagRuns},
		Summary: "Run a command, and stream its output",
		Description: "A client that closes its connection stops the command, unless that runs in the background. " +
			"One that does not read holds the command up, but not its timeout.",
		MaxBodyBytes: maxRunBody,
		Responses: map[string]*huma.Response{
			"200": eventsResponse(g.api),
			"202": {Description: "It runs in the background", Content: map[string]*huma.MediaType{jsonType: {Schema: inBackground}}},
		},
	}, bySession, failures{text: workspaceFailures, file: []int{http.StatusBadRequest, http.StatusNotFound}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Accept    string `header:"Accept" doc:"text/event-stream for server-sent events"`
		Body      startRequest
	}) (*streamed, error) {
		return g.startStream(ctx, in.SessionID, in.Accept, in.Body)
	})

	register(g, huma.Operation{
		OperationID: "follow-run", Method: http.MethodGet, Path: "/sessions/{session_id}/runs/{run_id}/output", Tags: []string{tagRuns},
		Summary: "Follow what a run writes",
		Description: "From the offsets on, as far as that is kept: a gap is told. It ends with the run. " +
			"The output of a run that was started with run is kept until that ends, that of one in the background for some minutes more.",
		Responses: map[string]*huma.Response{"200": eventsResponse(g.api)},
	}, bySession, failures{text: []int{http.StatusConflict, http.StatusServiceUnavailable}, file: []int{http.StatusNotFound}}, func(ctx context.Context, in *struct {
		SessionID   string `path:"session_id" maxLength:"64" doc:"The session's id"`
		RunID       string `path:"run_id" pattern:"^[0-9a-f]{32}$" doc:"The run's id"`
		Stdout      int64  `query:"stdout_offset" minimum:"0" doc:"How much of stdout is passed over"`
		Stderr      int64  `query:"stderr_offset" minimum:"0" doc:"How much of stderr is passed over"`
		Follow      bool   `query:"follow" default:"true" doc:"False is: end when there is nothing more for now"`
		LastEventID string `header:"Last-Event-ID" doc:"The id of the last server-sent event that the client has, instead of the offsets"`
		Accept      string `header:"Accept" doc:"text/event-stream for server-sent events"`
	}) (*streamed, error) {
		r, err := g.active(ctx, in.SessionID, in.RunID)
		if err != nil {
			return nil, err
		}
		if in.LastEventID != "" {
			var ok bool
			if in.Stdout, in.Stderr, ok = parseEventID(in.LastEventID); !ok {
				return nil, errInvalid("value_error", "want an id that an event had", nil, "header", "Last-Event-ID")
			}
		}
		f, ok := r.log.follow(in.Stdout, in.Stderr, false)
		if !ok {
			stdout, stderr := r.log.written()
			return nil, errText(http.StatusConflict, fmt.Sprintf("the run has written %d bytes of stdout and %d of stderr so far", stdout, stderr))
		}
		return &streamed{func(hctx huma.Context) {
			g.follow(ctx, startEvents(hctx, wantsSSE(in.Accept)), r, f, in.Follow)
		}}, nil
	})

	type wrote struct{ Body inputState }
	register(g, huma.Operation{
		OperationID: "write-stdin", Method: http.MethodPost, Path: "/sessions/{session_id}/runs/{run_id}/stdin", Tags: []string{tagRuns},
		Summary: "Write to a run's stdin",
		Description: "Of a run that was started with stdin. The answer comes when the command has taken all, so a command that does not read holds it up. " +
			"With an offset a call can be repeated: what was taken already is passed over.",
		RequestBody: rawBody(false, "What is written"),
	}, bySession, failures{text: []int{http.StatusConflict, http.StatusServiceUnavailable}, file: []int{http.StatusNotFound}}, func(ctx context.Context, in *struct {
		rawRequest
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		RunID     string `path:"run_id" pattern:"^[0-9a-f]{32}$" doc:"The run's id"`
		Offset    int64  `query:"offset" minimum:"-1" default:"-1" doc:"Where the body begins in all of stdin; -1 is: where the last one ended"`
		End       bool   `query:"end" doc:"Stdin is at its end after the body"`
	}) (*wrote, error) {
		r, err := g.active(ctx, in.SessionID, in.RunID)
		if err != nil {
			return nil, err
		}
		request, _ := in.unwrap()
		state, err := r.writeInput(ctx, request.Body, in.Offset, in.End)
		if err != nil {
			return nil, err
		}
		return &wrote{state}, nil
	})

	register(g, huma.Operation{
		OperationID: "signal-run", Method: http.MethodPost, Path: "/sessions/{session_id}/runs/{run_id}/signal", Tags: []string{tagRuns},
		Summary:     "Send a signal to a run",
		Description: "To the command's direct process alone. To end all of a run there is stop.",
	}, bySession, failures{text: workspaceFailures, file: []int{http.StatusNotFound}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		RunID     string `path:"run_id" pattern:"^[0-9a-f]{32}$" doc:"The run's id"`
		Body      signalRequest
	}) (*struct{}, error) {
		r, err := g.active(ctx, in.SessionID, in.RunID)
		if err != nil {
			return nil, err
		}
		return nil, g.signal(ctx, r, workspace.Signal(in.Body.Signal))
	})
}

// startStream starts a run, and has its answer follow it.
func (g *Gateway) startStream(ctx context.Context, id, accept string, in startRequest) (*streamed, error) {
	spec := runSpec{
		key: runKey{id, deref(in.RunID)}, keep: streamWindow, input: in.Stdin, background: in.Background, lead: !in.Background,
		command: workspace.Command{
			Args: in.Argv, Script: in.Script, Dir: in.Dir, Env: in.Env,
			Timeout: g.runTimeout(in.TimeoutSeconds), OutputLimit: workspace.NoOutputLimit,
		},
	}
	if in.OutputLimit != nil {
		spec.command.OutputLimit = *in.OutputLimit
	}
	if spec.key.id == "" {
		spec.key.id = newRunID()
	}
	r, err := g.start(ctx, spec)
	if err != nil {
		return nil, err
	}
	if in.Background {
		go g.wait(ctx, r) // owned by g.runs, whose shutdown waits for it
		return &streamed{func(hctx huma.Context) {
			hctx.SetHeader("Content-Type", jsonType)
			hctx.SetStatus(http.StatusAccepted)
			_ = json.NewEncoder(hctx.BodyWriter()).Encode(startedInBackground{r.key.id}) // the client may have gone
		}}, nil
	}
	return &streamed{func(hctx huma.Context) {
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			g.wait(ctx, r)
		}()
		defer func() {
			// A client that is gone, or takes nothing, does not hold it up any more.
			r.cancel(context.Canceled)
			r.lead.leave()
			<-waited
		}()
		events := startEvents(hctx, wantsSSE(accept))
		if events.send("started", startedEvent{"started", r.key.id}) == nil {
			g.follow(ctx, events, r, r.lead, true)
		}
	}}, nil
}

func newRunID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// follow sends the events of a run to a client, until its end. Who only looks on does
// not hold up the end of the gateway.
func (g *Gateway) follow(ctx context.Context, events *eventWriter, r *activeRun, f *follower, stay bool) {
	quit := g.draining
	if f == r.lead {
		quit = nil
	}
	state, err := events.relay(ctx, f, stay, quit)
	if f == r.lead && errors.Is(context.Cause(ctx), errShutdown) {
		// The command is being stopped: its client hears the end of it.
		state, err = events.relay(context.WithoutCancel(ctx), f, stay, quit)
	}
	if err != nil {
		return
	}
	if state == atEnd {
		<-r.ended
		if err := events.send("ended", ended(r.end)); err != nil {
			return
		}
	}
	_ = events.flush() // the client may have gone
}

// active finds a run of this gateway.
func (g *Gateway) active(ctx context.Context, session, id string) (*activeRun, error) {
	info, err := g.sessions.Get(ctx, session)
	if err != nil {
		return nil, err
	}
	if r := g.runs.get(runKey{session, id}, info.Created); r != nil {
		return r, nil
	}
	runs, err := g.sessions.Runs(ctx, session)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.ID == id && r.End == nil {
			return nil, errText(http.StatusConflict, "another gateway runs it: ask that one")
		}
	}
	return nil, errFile(http.StatusNotFound, "FileNotFoundError", "no such run: "+id)
}

// inputChunk is how much of a body is read before it is given to the command.
const inputChunk = 32 << 10

// writeInput writes a body to stdin.
func (r *activeRun) writeInput(ctx context.Context, body io.Reader, offset int64, end bool) (inputState, error) {
	if r.input == nil {
		return inputState{}, errText(http.StatusConflict, "the run was started without stdin")
	}
	taken, err := r.input.begin(ctx)
	if err != nil {
		return inputState{}, inputError(err, taken)
	}
	defer r.input.finish()
	if offset >= 0 {
		switch {
		case offset > taken:
			return inputState{}, errText(http.StatusConflict, fmt.Sprintf("stdin is at offset %d", taken))
		case offset < taken:
			// At its end, all of it was there already.
			if _, err := io.CopyN(io.Discard, body, taken-offset); err != nil && !errors.Is(err, io.EOF) {
				return inputState{}, errBody(err)
			}
		}
	}
	for done := false; !done; {
		chunk := make([]byte, inputChunk)
		n, err := body.Read(chunk)
		done = errors.Is(err, io.EOF)
		if err != nil && !done {
			return inputState{}, errBody(err)
		}
		if err := r.input.write(ctx, chunk[:n]); err != nil {
			return inputState{}, inputError(err, r.input.taken.Load())
		}
	}
	if end {
		r.input.close()
	}
	return inputState{r.input.taken.Load(), end}, nil
}

func inputError(err error, taken int64) error {
	if errors.Is(err, errInputEnded) {
		return errText(http.StatusConflict, fmt.Sprintf("stdin has ended, at offset %d", taken))
	}
	return err
}

// errBody is a request's body that could not be read: its client has gone, or sends
// nothing any more.
func errBody(err error) error {
	var refused *wireError
	if errors.As(err, &refused) { // by a reader of ours
		return refused
	}
	status := http.StatusBadRequest
	if errors.Is(err, os.ErrDeadlineExceeded) {
		status = http.StatusRequestTimeout
	}
	wire := errText(status, "the request's body could not be read")
	wire.cause = err
	return wire
}

// signalTimeout is for a signal to arrive.
const signalTimeout = 10 * time.Second

func (g *Gateway) signal(ctx context.Context, r *activeRun, sig workspace.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	hasEnded := errText(http.StatusConflict, "the run has ended")
	select {
	case <-r.started:
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if isClosed(r.ended) {
		return hasEnded
	}
	o := g.observe(r.key.session, "signal", string(sig)+" "+r.key.id)
	err := r.process.Signal(ctx, sig)
	o.failed(err)
	if errors.Is(err, os.ErrProcessDone) {
		return hasEnded
	}
	return err
}
