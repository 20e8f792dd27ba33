package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// Service says who records traces.
type Service struct {
	// Name and Version are of the program. OTEL_SERVICE_NAME wins, and
	// OTEL_RESOURCE_ATTRIBUTES unless Own: the variables are another program's.
	Name, Version string
	Own           bool
	// Clean is applied to each text before it leaves the process. Nil changes
	// nothing; that texts are valid UTF-8 is seen to in any case.
	Clean func(string) string
	// Failed is told when spans are not taken any more.
	Failed func(error)
}

// Exporter records traces and hands them to a collector. A nil one records none.
type Exporter struct {
	trace.TracerProvider
	shutdown func(context.Context) error
}

// Provider is e, or no provider at all.
func (e *Exporter) Provider() trace.TracerProvider {
	if e == nil {
		return nil
	}
	return e.TracerProvider
}

// Shutdown hands over what was recorded, until ctx ends, and records no more.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.shutdown(ctx)
}
