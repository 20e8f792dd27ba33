package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// sessionEvent is one operation on a session: what was asked for and how it went,
// never the contents of files or what a command wrote.
type sessionEvent struct {
	Seq        int64   `json:"seq"`
	At         float64 `json:"at" doc:"Unix time, in seconds"`
	Op         string  `json:"op"`
	Target     string  `json:"target"`
	OK         bool    `json:"ok"`
	Detail     string  `json:"detail"`
	DurationMS float64 `json:"duration_ms"`
}

type sessionEvents struct {
	Events    []sessionEvent `json:"events" nullable:"false"`
	LatestSeq int64          `json:"latest_seq"`
}

func registerEvents(g *Gateway) {
	type listed struct{ Body sessionEvents }
	register(g, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/sessions/{session_id}/events", Tags: []string{tagSessions},
		Summary: "Tell what was done in a session",
	}, bySession, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		After     int64  `query:"after" minimum:"0" doc:"Leave out events up to this number"`
	}) (*listed, error) {
		events, latest, err := g.sessions.Events(ctx, in.SessionID, in.After)
		if err != nil {
			return nil, err
		}
		out := &listed{sessionEvents{make([]sessionEvent, len(events)), latest}}
		for i, e := range events {
			out.Body.Events[i] = sessionEvent{
				Seq: e.Seq, At: unix(e.At), Op: e.Op, Target: plain(e.Target), OK: e.OK, Detail: plain(e.Detail),
				DurationMS: float64(e.Duration.Microseconds()) / 1e3,
			}
		}
		return out, nil
	})
}
