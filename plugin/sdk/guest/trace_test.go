package guest_test

import (
	"context"
	"net"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/plugin/sdk/guest"
)

// TestADialIsInTheTraceOfWhoAsked, though it outlives that call.
func TestADialIsInTheTraceOfWhoAsked(t *testing.T) {
	f := startFake(t, nil)
	asked := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	var dialed trace.SpanContext
	ws, err := guest.Open(trace.ContextWithSpanContext(t.Context(), asked), guest.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		dialed = trace.SpanContextFromContext(ctx)
		return f.dial(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
	if !dialed.Equal(asked) {
		t.Errorf("dialed in the trace %v, asked for in %v", dialed, asked)
	}
}
