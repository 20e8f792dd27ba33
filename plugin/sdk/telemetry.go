package sdk

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/shared/wire"
)

// traceFlush is how long the end of a plugin waits for a collector to take the
// last spans: one that answers needs some milliseconds, and one that does not is
// to delay nobody.
const traceFlush = 500 * time.Millisecond

// recordTraces has a plugin's process record the calls that it answers, and what
// they do in turn, if its environment says where to. Providers need not know of
// it: whatever starts spans of the provider that is in its context,
// trace.SpanFromContext(ctx).TracerProvider(), adds to the trace of the call.
func recordTraces(def definition, redactor *redactor, logger hclog.Logger) *tracing.Exporter {
	exporter, err := tracing.FromEnvironment(context.Background(), tracing.Service{
		Name: wire.BinaryPrefix + def.name, Version: def.version,
		Own:    true,
		Clean:  redactor.text,
		Failed: func(err error) { logger.Warn("recording traces", "error", err) },
	})
	if err != nil { // a plugin is to serve all the same
		logger.Warn("recording no traces", "error", err)
	}
	return exporter
}

// flushTraces ends the recording.
func flushTraces(exporter *tracing.Exporter, logger hclog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), traceFlush)
	defer cancel()
	if err := exporter.Shutdown(ctx); err != nil {
		logger.Debug("the last traces were not taken", "error", err)
	}
}
