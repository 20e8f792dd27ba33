package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"
)

// jsonType is what all answers are that are not files or streams.
const jsonType = "application/json"

// api is huma's, with the wire that sandboxd's clients know: its errors, and JSON
// that is taken and given without negotiation. It changes nothing that other
// users of the library in the same program would see.
type api struct {
	huma.API
	logger hclog.Logger
}

// newAPI makes an API without operations.
func newAPI(mux *http.ServeMux, version string, logger hclog.Logger) *api {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Berth",
				Version: version,
				Description: "Workspaces for agents over HTTP: sessions in which commands run and files are kept, " +
					"at whichever provider the runtime asked for leads to.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					tokenScheme: {Type: "apiKey", In: "header", Name: tokenHeader, Description: "the service's token, or where a call is about one session, that session's"},
				},
			},
		},
		Formats:       map[string]huma.Format{jsonType: huma.DefaultJSONFormat},
		DefaultFormat: jsonType,
	}
	return &api{huma.NewAPI(config, &adapter{humago.NewAdapter(exactRoot{mux}, "")}), logger}
}

// exactRoot has the pattern of the root match nothing else.
type exactRoot struct{ *http.ServeMux }

// HandleFunc registers a handler.
func (m exactRoot) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	if strings.HasSuffix(pattern, " /") {
		pattern += "{$}"
	}
	m.ServeMux.HandleFunc(pattern, handler)
}

// adapter hands each request on as an exchange.
type adapter struct{ huma.Adapter }

// Handle registers an operation.
func (a *adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	a.Adapter.Handle(op, func(ctx huma.Context) { handler(&exchange{humaContext: ctx}) })
}

type humaContext = huma.Context

// exchange is one request and its answer.
type exchange struct {
	humaContext
	// status replaces the one that huma chose, if it is not zero.
	status int
	query  url.Values // see readQuery
}

// Query is a parameter's value.
func (e *exchange) Query(name string) string { return e.query.Get(name) }

// Unwrap is what humago knows.
func (e *exchange) Unwrap() huma.Context { return e.humaContext }

// SetStatus begins the answer.
func (e *exchange) SetStatus(status int) {
	if e.status != 0 {
		status = e.status
	}
	e.humaContext.SetStatus(status)
}

// SetReadDeadline does nothing: huma would leave its deadline standing after the
// body was read, and that ends a long request's context. [timedBody] has one that
// is taken away.
func (e *exchange) SetReadDeadline(time.Time) error { return nil }

// exchangeOf finds the exchange below what middlewares have put around it.
func exchangeOf(ctx huma.Context) *exchange {
	for {
		if e, ok := ctx.(*exchange); ok {
			return e
		}
		outer, ok := ctx.(interface{ Unwrap() huma.Context })
		if !ok {
			return nil
		}
		ctx = outer.Unwrap()
	}
}

// Negotiate chooses JSON: there is no other.
func (*api) Negotiate(string) (string, error) { return jsonType, nil }

// Transform turns errors into those of the wire: a handler's own, and what huma
// found wrong with a request.
func (a *api) Transform(ctx huma.Context, _ string, value any) (any, error) {
	var wire *wireError
	switch v := value.(type) {
	case *wireError:
		wire = v
	case *huma.ErrorModel:
		wire = translate(v)
	default:
		return value, nil
	}
	a.log(ctx, wire)
	ctx.SetHeader("Content-Type", jsonType)
	if e := exchangeOf(ctx); e != nil {
		e.status = wire.status
	}
	return wire.body(), nil
}

// log tells an operator of what is no fault of a client's.
func (a *api) log(ctx huma.Context, wire *wireError) {
	level := hclog.Debug
	switch {
	case ctx.Context().Err() != nil: // the client has gone
	case wire.status == http.StatusInternalServerError:
		level = hclog.Error
	case wire.status == http.StatusBadGateway, wire.status == http.StatusServiceUnavailable:
		level = hclog.Warn
	}
	a.logger.Log(level, "request refused", "operation", ctx.Operation().OperationID, "session", ctx.Param("session_id"), "status", wire.status, "error", wire)
}

// Marshal writes JSON.
func (a *api) Marshal(w io.Writer, _ string, value any) error {
	return huma.DefaultJSONFormat.Marshal(w, value)
}

// Unmarshal reads JSON, strictly.
func (a *api) Unmarshal(contentType string, data []byte, value any) error {
	if !isJSON(contentType) {
		return huma.ErrUnknownContentType
	}
	return unmarshal(data, value)
}

// answerError writes an error from where there is no handler to return it.
func (a *api) answerError(ctx huma.Context, err error) {
	var wire *wireError
	if !errors.As(mapError(err), &wire) {
		wire = &wireError{status: http.StatusInternalServerError, cause: err}
	}
	a.log(ctx, wire)
	for name, values := range wire.GetHeaders() {
		for _, value := range values {
			ctx.AppendHeader(name, value)
		}
	}
	ctx.SetHeader("Content-Type", jsonType)
	ctx.SetStatus(wire.status)
	_ = a.Marshal(ctx.BodyWriter(), jsonType, wire.body()) // the client may have gone
}
