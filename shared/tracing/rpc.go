package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	metric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// DialOption has a connection to a plugin make a span of each call of berth.v1
// and tell the plugin of it. Nil is no option that changes anything.
func DialOption(provider trace.TracerProvider) grpc.DialOption {
	if provider == nil {
		return grpc.EmptyDialOption{}
	}
	return grpc.WithStatsHandler(leaving{quiet{otelgrpc.NewClientHandler(options(provider)...)}})
}

// ServerOption has a server of berth.v1 make a span of each call, as a child of
// that which the caller told of. Nil is no option that changes anything.
func ServerOption(provider trace.TracerProvider) grpc.ServerOption {
	if provider == nil {
		return grpc.EmptyServerOption{}
	}
	return grpc.StatsHandler(quiet{otelgrpc.NewServerHandler(options(provider)...)})
}

func options(provider trace.TracerProvider) []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(provider),
		otelgrpc.WithMeterProvider(metric.NewMeterProvider()), // the host has its own figures
		// Not the process's own choice, which may let baggage cross too.
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		// Health checks and go-plugin's streams are nobody's call.
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool {
			return strings.HasPrefix(info.FullMethodName, "/"+berthv1.Provider_ServiceDesc.ServiceName+"/")
		}),
	}
}

// quiet keeps the texts of errors from a handler, which would put them into the
// status of its span.
type quiet struct{ stats.Handler }

// HandleRPC passes on what happens to a call.
func (q quiet) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if end, ok := event.(*stats.End); ok && end.Error != nil {
		told := *end
		told.Error = status.Error(status.Code(end.Error), "")
		event = &told
	}
	q.Handler.HandleRPC(ctx, event)
}

// leaving has a call that its caller breaks off end without an error. Callers leave a
// stream as soon as they have their answer; one who leaves before says so in the span
// of what they were doing.
type leaving struct{ stats.Handler }

// HandleRPC passes on what happens to a call.
func (l leaving) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if end, ok := event.(*stats.End); ok && status.Code(end.Error) == codes.Canceled && errors.Is(ctx.Err(), context.Canceled) {
		told := *end
		told.Error = nil
		event = &told
	}
	l.Handler.HandleRPC(ctx, event)
}
