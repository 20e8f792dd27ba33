package gateway

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// newTracer is nil if nobody wants spans.
func newTracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer("github.com/berth-dev/berth/host/gateway")
}

// traced begins a request's span, below that which its client tells of. Of the
// request there are the method and the operation: neither a path nor a query, which
// clients may put anything into.
func (g *Gateway) traced(r *http.Request) (*http.Request, trace.Span) {
	if g.tracer == nil {
		return r, noop.Span{}
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := g.tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), span
}

// endTrace ends it. The operation is such as "GET /sessions/{session_id}", and empty
// for none that there is; a zero status is a client that left.
func endTrace(span trace.Span, operation string, status int) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if method, route, ok := strings.Cut(operation, " "); ok {
		span.SetName(operation)
		span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route))
	}
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
}
