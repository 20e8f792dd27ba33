package gateway

import (
	"context"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxRunBody is a command as large as any that can be run (contract C1), as JSON may
// write it.
const maxRunBody = 16 << 20

// runRequest is a command to run.
type runRequest struct {
	_              struct{}          `json:"-" additionalProperties:"true"`
	Argv           []string          `json:"argv" nullable:"false" minItems:"1" doc:"The program and its arguments, passed literally"`
	Env            map[string]string `json:"env,omitempty" doc:"Variables for this command, over the workspace's own"`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" nullable:"true" exclusiveMinimum:"0" doc:"When the command is stopped; the policy's execute_timeout is the most, and what counts without"`
	RunID          string            `json:"run_id" pattern:"^[0-9a-f]{32}$" doc:"The client's own name of the run, to stop it by"`
}

// runResponse is how a command ended.
type runResponse struct {
	Stdout        string `json:"stdout" doc:"With each byte that is not UTF-8 replaced by U+FFFD"`
	Stderr        string `json:"stderr" doc:"As stdout"`
	ExitCode      *int   `json:"exit_code" doc:"128+N for one that signal N ended; null if it was stopped at a limit"`
	TimedOut      bool   `json:"timed_out" doc:"It was stopped at its timeout; the outputs are the beginnings"`
	OutputLimited bool   `json:"output_limited" doc:"It was stopped because it wrote too much; the outputs are the beginnings"`
	OutputLimit   *int64 `json:"output_limit" doc:"In bytes, for both streams together"`
}

// runEntry is a run in a listing.
type runEntry struct {
	RunID      string   `json:"run_id"`
	Argv       []string `json:"argv" nullable:"false"`
	Background bool     `json:"background" doc:"It goes on when its client goes"`
	Running    bool     `json:"running"`
	StartedAt  float64  `json:"started_at" doc:"Unix time, in seconds"`
	EndedAt    *float64 `json:"ended_at" doc:"Unix time, in seconds"`
	ExitCode   *int     `json:"exit_code" doc:"Null while it goes, and if it has none"`
	Detail     string   `json:"detail" doc:"How it ended, in words"`
}

type runList struct {
	Runs []runEntry `json:"runs" nullable:"false" doc:"Oldest first: those that go, and those that ended within the last minutes"`
}

// Statuses that a call on a workspace may answer beside those about its own matter.
var workspaceFailures = []int{
	http.StatusConflict, http.StatusGone, http.StatusTooManyRequests, http.StatusNotImplemented,
	http.StatusBadGateway, http.StatusServiceUnavailable,
}

func registerRuns(g *Gateway) {
	type ran struct{ Body runResponse }
	register(g, huma.Operation{
		OperationID: "run", Method: http.MethodPost, Path: "/sessions/{session_id}/run", Tags: []string{tagRuns},
		Summary: "Run a command, and wait for it",
		Description: "Its stdin is at its end. A command that was stopped at a limit is a success here: the answer says which. " +
			"A client that closes its connection stops the command.",
		MaxBodyBytes: maxRunBody,
	}, bySession, failures{text: workspaceFailures}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Body      runRequest
	}) (*ran, error) {
		r, err := g.start(ctx, runSpec{
			key: runKey{in.SessionID, in.Body.RunID},
			command: workspace.Command{
				Args: in.Body.Argv, Env: in.Body.Env, Timeout: g.runTimeout(in.Body.TimeoutSeconds),
			},
		})
		if err != nil {
			return nil, err
		}
		g.wait(ctx, r)
		if r.end.err != nil {
			return nil, r.end.err
		}
		return &ran{r.response()}, nil
	})

	register(g, huma.Operation{
		OperationID: "stop-run", Method: http.MethodPost, Path: "/sessions/{session_id}/runs/{run_id}/stop", Tags: []string{tagRuns},
		Summary:     "Stop a run",
		Description: "All that it started is stopped too. A run that has ended, or that nobody knows, is a success.",
	}, bySession, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		RunID     string `path:"run_id" pattern:"^[0-9a-f]{32}$" doc:"The run's id"`
	}) (*struct{}, error) {
		if _, err := g.sessions.Get(ctx, in.SessionID); err != nil {
			return nil, err
		}
		return nil, g.sessions.StopRun(ctx, in.SessionID, in.RunID)
	})

	type listed struct{ Body runList }
	register(g, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/sessions/{session_id}/runs", Tags: []string{tagRuns},
		Summary: "List the runs of a session",
	}, bySession, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
	}) (*listed, error) {
		if _, err := g.sessions.Get(ctx, in.SessionID); err != nil {
			return nil, err
		}
		runs, err := g.sessions.Runs(ctx, in.SessionID)
		if err != nil {
			return nil, err
		}
		out := &listed{runList{make([]runEntry, len(runs))}}
		for i, r := range runs {
			out.Body.Runs[i] = entryOf(r)
		}
		return out, nil
	})
}

func entryOf(r session.RunInfo) runEntry {
	e := runEntry{RunID: r.ID, Argv: make([]string, len(r.Args)), Background: r.Detached, Running: r.End == nil, StartedAt: unix(r.Started)}
	for i, arg := range r.Args {
		e.Argv[i] = plain(arg)
	}
	if r.End != nil {
		at := unix(r.End.At)
		e.EndedAt, e.ExitCode, e.Detail = &at, r.End.ExitCode, plain(r.End.Detail)
	}
	return e
}

// runTimeout is what a client asked for, within the policy.
func (g *Gateway) runTimeout(asked *float64) time.Duration {
	most := g.sessions.Policy().ExecuteTimeout
	if asked == nil || *asked >= most.Seconds() {
		return most
	}
	return max(1, time.Duration(math.Ceil(*asked*float64(time.Second)))) // zero would be none
}

// response is the answer to a run that has ended and is no error.
func (r *activeRun) response() runResponse {
	size := math.MaxInt
	if r.end.timedOut || r.end.limited {
		size = workspace.PartialOutput
	}
	out := runResponse{
		Stdout: r.log.text(stdoutStream, size), Stderr: r.log.text(stderrStream, size),
		ExitCode: r.end.exitCode, TimedOut: r.end.timedOut, OutputLimited: r.end.limited,
	}
	if r.end.limited {
		out.OutputLimit = &r.end.limit
	}
	return out
}

// invalidCommand is a 422 for what no workspace could run (contract C1).
func invalidCommand(cmd workspace.Command) error {
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard // the limit depends on them
	if err := cmd.Validate(); err != nil {
		return errInvalid("value_error", plain(err.Error()), nil, "body")
	}
	return nil
}

// arguments are what a listing tells of a command.
func arguments(cmd workspace.Command) []string {
	if cmd.Script != "" {
		return []string{"/bin/sh", "-c", cmd.Script}
	}
	return cmd.Args
}

func commandText(cmd workspace.Command) string { return shellWords(arguments(cmd)) }
