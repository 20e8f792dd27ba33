package gateway

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// openAPIPath is where the OpenAPI document is served.
const openAPIPath = "/openapi.json"

// health is whether the service works, and how full it is.
type health struct {
	Status       string   `json:"status" enum:"ok"`
	Sessions     int      `json:"sessions" doc:"Sessions whose workspace runs"`
	Limit        *int     `json:"limit" doc:"The policy's max_sessions"`
	OpenSessions int      `json:"open_sessions" doc:"Open sessions, hibernated ones too"`
	OpenLimit    *int     `json:"open_limit" doc:"The policy's max_open_sessions"`
	Runtimes     []string `json:"runtimes" nullable:"false"`
}

// serviceIndex says what this is, and where to go on.
type serviceIndex struct {
	Service        string   `json:"service" enum:"sandboxd" doc:"The protocol"`
	Implementation string   `json:"implementation" doc:"The program and its version"`
	Health         health   `json:"health"`
	DocsURL        *string  `json:"docs_url" doc:"Always null: the OpenAPI document says everything"`
	OpenAPIURL     string   `json:"openapi_url"`
	UIURL          *string  `json:"ui_url" doc:"Always null: there is none"`
	Endpoints      []string `json:"endpoints" nullable:"false"`
}

func (g *Gateway) health(ctx context.Context) (health, error) {
	counts, err := g.sessions.Count(ctx)
	if err != nil {
		return health{}, err
	}
	policy := g.sessions.Policy()
	return health{
		Status: "ok", Sessions: counts.Resident, Limit: policy.MaxSessions,
		OpenSessions: counts.Open, OpenLimit: policy.MaxOpenSessions, Runtimes: g.config.aliases(),
	}, nil
}

func registerIndex(g *Gateway) {
	type indexed struct{ Body serviceIndex }
	unwell := failures{text: []int{http.StatusServiceUnavailable}}
	register(g, huma.Operation{
		OperationID: "index", Method: http.MethodGet, Path: "/", Tags: []string{tagService},
		Summary: "Tell what is served here",
	}, byAnyone, unwell, func(ctx context.Context, _ *struct{}) (*indexed, error) {
		h, err := g.health(ctx)
		if err != nil {
			return nil, err
		}
		return &indexed{serviceIndex{
			Service: "sandboxd", Implementation: "berth " + g.config.Version, Health: h,
			OpenAPIURL: openAPIPath, Endpoints: slices.Sorted(maps.Keys(g.api.OpenAPI().Paths)),
		}}, nil
	})

	type healthy struct{ Body health }
	register(g, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: []string{tagService},
		Summary: "Tell whether the service works",
	}, byAnyone, unwell, func(ctx context.Context, _ *struct{}) (*healthy, error) {
		h, err := g.health(ctx)
		if err != nil {
			return nil, err
		}
		return &healthy{h}, nil
	})

	type streamed struct{ Body func(huma.Context) }
	counted := g.metrics.handler()
	register(g, huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{tagService},
		Summary:     "Tell what was counted, for Prometheus",
		Description: "Nothing in it names a session, a tenant or a path.",
		Responses: map[string]*huma.Response{"200": {Description: "Prometheus' text format", Content: map[string]*huma.MediaType{
			"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}},
		}}},
	}, byAnyone, failures{}, func(context.Context, *struct{}) (*streamed, error) {
		return &streamed{func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			counted.ServeHTTP(w, r)
		}}, nil
	})

	register(g, huma.Operation{
		OperationID: "openapi", Method: http.MethodGet, Path: openAPIPath, Tags: []string{tagService},
		Summary: "This document",
		Responses: map[string]*huma.Response{"200": {Description: "OpenAPI 3.1", Content: map[string]*huma.MediaType{
			jsonType: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}}},
	}, byAnyone, failures{}, func(context.Context, *struct{}) (*streamed, error) {
		return &streamed{func(ctx huma.Context) {
			ctx.SetHeader("Content-Type", jsonType)
			ctx.SetStatus(http.StatusOK)
			_, _ = ctx.BodyWriter().Write(g.document) // the client may have gone
		}}, nil
	})
}
