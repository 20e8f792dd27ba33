package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

// createSession is what a client asks a session with. What else is in it is
// ignored, as clients of a later protocol expect.
type createSession struct {
	_         struct{} `json:"-" additionalProperties:"true"`
	SessionID *string  `json:"session_id,omitempty" nullable:"true" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"The session's name; without one it gets one"`
	Runtime   *string  `json:"runtime,omitempty" nullable:"true" maxLength:"64" doc:"One of the runtimes of the policy; its default without one"`
	Tenant    *string  `json:"tenant,omitempty" nullable:"true" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"On whose behalf, for the ceiling per tenant"`
	Reuse     *bool    `json:"reuse,omitempty" nullable:"true" doc:"Take the session of that name if it is there"`
	Attach    *bool    `json:"attach,omitempty" nullable:"true" doc:"Take the session of that name, and make none"`
}

// sessionCreated is a session and the token for it alone.
type sessionCreated struct {
	Session sessionInfo `json:"session"`
	Token   string      `json:"token" doc:"Opens the calls about this session, and no others"`
}

// sessionInfo is a session as clients see it.
type sessionInfo struct {
	SessionID    string  `json:"session_id"`
	Runtime      string  `json:"runtime"`
	Tenant       *string `json:"tenant"`
	Alive        bool    `json:"alive" doc:"Whether its workspace runs, as far as is known without asking it"`
	State        string  `json:"state" enum:"running,hibernated" doc:"A hibernated one wakes at the next call"`
	CreatedAt    float64 `json:"created_at" doc:"Unix time, in seconds"`
	LastActivity float64 `json:"last_activity" doc:"Unix time, in seconds"`
	IdleSeconds  float64 `json:"idle_seconds"`
	Usage        noUsage `json:"usage"`
}

// noUsage is what is told of a workspace's use of its machine: providers have no
// such call.
type noUsage struct{}

// Schema is that of null.
func (noUsage) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "null", Description: "Not measured"}
}

// MarshalJSON writes null.
func (noUsage) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// sessionList is the open sessions.
type sessionList struct {
	Sessions    []sessionInfo `json:"sessions" nullable:"false"`
	Limit       *int          `json:"limit" doc:"The policy's max_sessions"`
	OpenLimit   *int          `json:"open_limit" doc:"The policy's max_open_sessions"`
	TenantLimit *int          `json:"tenant_limit" doc:"The policy's max_sessions_per_tenant"`
}

func infoOf(info session.Info) sessionInfo {
	out := sessionInfo{
		SessionID: info.ID, Runtime: info.Runtime, Alive: info.Alive, State: string(info.State),
		CreatedAt: unix(info.Created), LastActivity: unix(info.LastActivity), IdleSeconds: max(0, info.Idle.Seconds()),
	}
	if info.Tenant != "" {
		out.Tenant = &info.Tenant
	}
	return out
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func registerSessions(g *Gateway) {
	type created struct{ Body sessionCreated }
	register(g, huma.Operation{
		OperationID: "create-session", Method: http.MethodPost, Path: "/sessions", Tags: []string{tagSessions},
		Summary:     "Open a session",
		Description: "Makes a workspace, or with reuse or attach comes back to one. A 409 that says that the session is opening means: ask again shortly.",
	}, byService, failures{text: []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests,
		http.StatusNotImplemented, http.StatusBadGateway, http.StatusServiceUnavailable,
	}}, func(ctx context.Context, in *struct{ Body createSession }) (*created, error) {
		info, token, err := g.sessions.Open(ctx, session.OpenRequest{
			ID: deref(in.Body.SessionID), Runtime: deref(in.Body.Runtime), Tenant: deref(in.Body.Tenant),
			Reuse: deref(in.Body.Reuse), Attach: deref(in.Body.Attach),
		})
		if err != nil {
			return nil, err
		}
		return &created{sessionCreated{infoOf(info), token}}, nil
	})

	type listed struct{ Body sessionList }
	register(g, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/sessions", Tags: []string{tagSessions},
		Summary: "List the open sessions",
	}, byService, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, _ *struct {
		Usage bool `query:"usage" doc:"Taken for compatibility: usage is not measured"`
	}) (*listed, error) {
		infos, err := g.sessions.List(ctx)
		if err != nil {
			return nil, err
		}
		policy := g.sessions.Policy()
		out := &listed{sessionList{make([]sessionInfo, len(infos)), policy.MaxSessions, policy.MaxOpenSessions, policy.MaxSessionsPerTenant}}
		for i, info := range infos {
			out.Body.Sessions[i] = infoOf(info)
		}
		return out, nil
	})

	type got struct{ Body sessionInfo }
	register(g, huma.Operation{
		OperationID: "get-session", Method: http.MethodGet, Path: "/sessions/{session_id}", Tags: []string{tagSessions},
		Summary: "Tell about a session",
	}, bySession, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Usage     bool   `query:"usage" doc:"Taken for compatibility: usage is not measured"`
	}) (*got, error) {
		info, err := g.sessions.Get(ctx, in.SessionID)
		if err != nil {
			return nil, err
		}
		return &got{infoOf(info)}, nil
	})

	register(g, huma.Operation{
		OperationID: "close-session", Method: http.MethodDelete, Path: "/sessions/{session_id}", Tags: []string{tagSessions},
		Summary:     "Close a session",
		Description: "Its files are kept, and an attach finds them, unless purge destroys them.",
	}, bySession, failures{text: []int{
		http.StatusConflict, http.StatusBadGateway, http.StatusServiceUnavailable,
	}}, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Purge     bool   `query:"purge" doc:"Destroy the workspace, with its files"`
	}) (*struct{}, error) {
		return nil, g.sessions.Close(ctx, in.SessionID, in.Purge)
	})
}

// deref is the value, or the zero one.
func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
