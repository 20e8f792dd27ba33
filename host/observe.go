package host

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/berth-dev/berth/shared/tracing"
)

// scope is whose spans and figures these are.
const scope = "github.com/berth-dev/berth/host"

// Attributes of spans. Those of figures are the provider, the operation, the
// direction and the kind of an error alone: all of them have few values.
const (
	attrProvider  = attribute.Key("berth.provider")
	attrOperation = attribute.Key("berth.operation")
	attrDirection = attribute.Key("berth.direction")
	attrWorkspace = attribute.Key("berth.workspace")
	attrRun       = attribute.Key("berth.run.id")
	attrBytesIn   = attribute.Key("berth.bytes.in")
	attrBytesOut  = attribute.Key("berth.bytes.out")
	attrPath      = attribute.Key("file.path")
	attrExitCode  = attribute.Key("process.exit.code")
	attrErrorType = attribute.Key("error.type")
)

// maxPath is how much of a path an attribute holds, in bytes.
const maxPath = 1 << 10

// observer makes spans and figures of what a host does. A nil one makes none, and
// costs nothing.
type observer struct {
	tracer   trace.Tracer
	provider trace.TracerProvider // nil if nobody wants spans
	figures  *figures             // nil if nobody wants figures
}

func newObserver(config Config) (*observer, error) {
	if config.TracerProvider == nil && config.MeterProvider == nil {
		return nil, nil //nolint:nilnil // a nil observer works
	}
	o := &observer{provider: config.TracerProvider}
	tracers := config.TracerProvider
	if tracers == nil {
		tracers = noop.NewTracerProvider()
	}
	o.tracer = tracers.Tracer(scope, trace.WithInstrumentationVersion(hostVersion()))
	if config.MeterProvider != nil {
		var err error
		if o.figures, err = newFigures(config.MeterProvider.Meter(scope, metric.WithInstrumentationVersion(hostVersion()))); err != nil {
			return nil, fmt.Errorf("host: making its metrics: %w", err)
		}
	}
	return o, nil
}

// tracers is for the calls to plugins; nil if nobody wants spans.
func (o *observer) tracers() trace.TracerProvider {
	if o == nil {
		return nil
	}
	return o.provider
}

// observation is one operation under way. A nil one is of nobody's interest.
type observation struct {
	p       *provider
	ctx     context.Context //nolint:containedctx // the operation's, with its span, but without its end
	op      string
	span    trace.Span
	began   time.Time
	in, out atomic.Int64 // bytes into the workspace, and out of it
	once    sync.Once

	mu    sync.Mutex
	attrs []attribute.KeyValue // told at the end: by then it is known what is secret
}

// observe begins an operation.
func (p *provider) observe(ctx context.Context, op string, attrs ...attribute.KeyValue) (context.Context, *observation) {
	o := p.host.observer
	if o == nil {
		return ctx, nil
	}
	ob := &observation{p: p, op: op, began: time.Now(), attrs: attrs}
	ctx, ob.span = o.tracer.Start(ctx, op+" "+p.name, trace.WithTimestamp(ob.began), trace.WithAttributes(attrProvider.String(p.name), attrOperation.String(op)))
	ob.ctx = context.WithoutCancel(ctx)
	return ctx, ob
}

func (ob *observation) set(attrs ...attribute.KeyValue) {
	if ob == nil {
		return
	}
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.attrs = append(ob.attrs, attrs...)
}

// moved counts bytes that went into the workspace, and out of it.
func (ob *observation) moved(in, out int64) {
	if ob == nil {
		return
	}
	ob.in.Add(in)
	ob.out.Add(out)
}

// end ends the operation. The first end counts. No text of err is kept: it may
// hold what a plugin or a command said (contract B7).
func (ob *observation) end(err error) {
	if ob == nil {
		return
	}
	ob.once.Do(func() {
		kind := errorKind(err)
		in, out := ob.in.Load(), ob.out.Load()
		ob.p.host.observer.figures.done(ob.ctx, ob.p.name, ob.op, kind, time.Since(ob.began), in, out)
		if ob.span.IsRecording() {
			ob.mu.Lock()
			ob.span.SetAttributes(tracing.Attributes(ob.attrs, ob.p.redact)...)
			ob.mu.Unlock()
			if in > 0 {
				ob.span.SetAttributes(attrBytesIn.Int64(in))
			}
			if out > 0 {
				ob.span.SetAttributes(attrBytesOut.Int64(out))
			}
			if kind != "" {
				ob.span.SetAttributes(attrErrorType.String(kind))
				ob.span.SetStatus(codes.Error, kind)
			}
		}
		ob.span.End()
	})
}

// pathAttr is the path of an operation, as far as it fits.
func pathAttr(path string) attribute.KeyValue {
	if len(path) > maxPath {
		path = path[:maxPath] + "…"
	}
	return attrPath.String(path)
}

// starting observes a start of the plugin.
func (p *provider) starting(ctx context.Context) (context.Context, func(error)) {
	ctx, ob := p.observe(ctx, opPlugin)
	return ctx, ob.end
}
