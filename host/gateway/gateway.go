// Package gateway serves workspaces over HTTP. Its wire is that of sandboxd, the
// service of pydantic-ai-backend, so that its clients work unchanged against every
// provider of a host, and some more besides: see the OpenAPI document that it
// serves at /openapi.json.
//
//	g, err := gateway.New(ctx, gateway.Config{Host: h, Token: token, Runtimes: runtimes})
//	l, err := g.Listen(ctx)
//	err = g.Serve(ctx, l)       // until ctx ends, and what is in flight then has been answered
//	err = g.Shutdown(ctx)
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// Gateway serves the sessions of one store.
type Gateway struct {
	config   Config
	logger   hclog.Logger
	store    *store.Store
	sessions *session.Manager
	metrics  *metrics
	tracer   trace.Tracer
	runs     *runTable
	tls      *tls.Config // nil without TLS

	mux      *http.ServeMux
	api      *api
	document []byte // OpenAPI, as JSON

	// draining is closed when a server of the gateway begins to end: what follows
	// something without an end of its own leaves then.
	draining chan struct{}
	drain    sync.Once

	answering requests
}

// registrations add the operations, a file's at a time, in the order of the
// OpenAPI document's tags.
var registrations = []func(*Gateway){
	registerIndex,
	registerPolicy,
	registerSessions,
	registerEvents,
	registerRuns,
	registerStream,
	registerFiles,
	registerContent,
	registerStored,
}

// New opens the store and makes a gateway. It listens nowhere yet.
func New(ctx context.Context, config Config) (*Gateway, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	g := &Gateway{config: config, logger: config.Logger, mux: http.NewServeMux(), draining: make(chan struct{}), runs: newRunTable(), tracer: newTracer(config.TracerProvider)}
	var err error
	if g.tls, err = config.TLS.load(config.Logger); err != nil {
		return nil, err
	}
	if g.store, err = store.Open(ctx, storeURL(config.Store)); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if g.sessions, err = session.New(config.session(g.store)); err != nil { //nolint:contextcheck // its work outlives ctx
		return nil, errors.Join(fmt.Errorf("gateway: %w", err), g.store.Close())
	}
	if g.metrics, err = newMetrics(config.Metrics, g.sessions); err != nil {
		return nil, errors.Join(err, g.Shutdown(ctx))
	}
	g.api = newAPI(g.mux, config.Version, g.logger)
	g.api.UseMiddleware(g.admit)
	for _, add := range registrations {
		add(g)
	}
	if g.document, err = g.describeAPI(); err != nil {
		return nil, errors.Join(err, g.Shutdown(ctx))
	}
	return g, nil
}

// Shutdown gives back what the gateway holds in its store, and closes it: after
// Serve has returned. Workspaces live on.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.beginDrain()
	return errors.Join(g.runs.shutdown(ctx), g.sessions.Shutdown(ctx), g.store.Close())
}

func (g *Gateway) beginDrain() { g.drain.Do(func() { close(g.draining) }) }

// admit checks the token that an operation asks for, before anything else of the
// request is looked at, and then its query.
func (g *Gateway) admit(ctx huma.Context, next func(huma.Context)) {
	who, _ := ctx.Operation().Metadata[accessKey].(access)
	if who != byAnyone {
		id := ""
		if who == bySession {
			id = ctx.Param("session_id")
		}
		if err := g.sessions.Authorize(ctx.Context(), ctx.Header(tokenHeader), id); err != nil {
			if r, _ := humago.Unwrap(ctx); r.ContentLength != 0 {
				// Else the server would wait for the body before it answers.
				ctx.SetHeader("Connection", "close")
			}
			g.api.answerError(ctx, err)
			return
		}
	}
	if err := readQuery(ctx); err != nil {
		g.api.answerError(ctx, err)
		return
	}
	next(ctx)
}
