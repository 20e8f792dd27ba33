package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/host/internal/supervisor"
)

// figures are a host's metrics: docs/observability.md has their table.
type figures struct {
	meter      metric.Meter
	operations metric.Int64Counter
	durations  metric.Float64Histogram
	bytes      metric.Int64Counter
	opened     metric.Int64Counter

	up       metric.Int64ObservableGauge
	leaving  metric.Int64ObservableGauge
	active   metric.Int64ObservableGauge
	restarts metric.Int64ObservableCounter
	swaps    metric.Int64ObservableCounter
	dropped  metric.Int64ObservableGauge
	isolated metric.Int64ObservableGauge
	watch    metric.Registration
}

// durationBounds are in seconds: from a small call to a plugin, which takes a
// fraction of a millisecond, to commands of hours.
func durationBounds() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
}

func newFigures(meter metric.Meter) (*figures, error) {
	f := &figures{meter: meter}
	var errs [11]error
	f.operations, errs[0] = meter.Int64Counter("berth.operations", metric.WithUnit("{operation}"),
		metric.WithDescription("Operations that ended; error.type tells of those that failed."))
	f.durations, errs[1] = meter.Float64Histogram("berth.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("How long operations took; that of a command or a stream is its whole life."),
		metric.WithExplicitBucketBoundaries(durationBounds()...))
	f.bytes, errs[2] = meter.Int64Counter("berth.io", metric.WithUnit("By"),
		metric.WithDescription("Bytes of files, stdin and output, into workspaces and out of them."))
	f.opened, errs[3] = meter.Int64Counter("berth.workspaces.opened", metric.WithUnit("{workspace}"),
		metric.WithDescription("Workspaces that were created, and attached to."))
	f.up, errs[4] = meter.Int64ObservableGauge("berth.plugin.up",
		metric.WithDescription("1 while the provider's plugin answers."))
	f.leaving, errs[5] = meter.Int64ObservableGauge("berth.plugin.leaving", metric.WithUnit("{process}"),
		metric.WithDescription("Plugin processes that were swapped out and finish what they have."))
	f.active, errs[6] = meter.Int64ObservableGauge("berth.plugin.calls.active", metric.WithUnit("{call}"),
		metric.WithDescription("Calls to the plugin that are in flight."))
	f.restarts, errs[7] = meter.Int64ObservableCounter("berth.plugin.restarts", metric.WithUnit("{restart}"),
		metric.WithDescription("Starts of the plugin after a death."))
	f.swaps, errs[8] = meter.Int64ObservableCounter("berth.plugin.swaps", metric.WithUnit("{swap}"),
		metric.WithDescription("Plugins that took the place of a running one."))
	f.dropped, errs[9] = meter.Int64ObservableGauge("berth.plugin.log.dropped", metric.WithUnit("{record}"),
		metric.WithDescription("Log records of the running plugin that the logger was too slow for."))
	f.isolated, errs[10] = meter.Int64ObservableGauge("berth.plugin.quarantined",
		metric.WithDescription("1 while the provider's plugin is not started, since it died too often."))
	return f, errors.Join(errs[:]...)
}

// done counts an operation that ended.
func (f *figures) done(ctx context.Context, provider, op, kind string, took time.Duration, in, out int64) {
	if f == nil {
		return
	}
	attrs := []attribute.KeyValue{attrProvider.String(provider), attrOperation.String(op)}
	f.durations.Record(ctx, took.Seconds(), metric.WithAttributes(attrs...))
	if kind != "" {
		attrs = append(attrs, attrErrorType.String(kind))
	}
	f.operations.Add(ctx, 1, metric.WithAttributes(attrs...))
	if in > 0 {
		f.bytes.Add(ctx, in, metric.WithAttributes(attrProvider.String(provider), attrDirection.String("in")))
	}
	if out > 0 {
		f.bytes.Add(ctx, out, metric.WithAttributes(attrProvider.String(provider), attrDirection.String("out")))
	}
	if kind == "" && (op == opCreate || op == opAttach) {
		f.opened.Add(ctx, 1, metric.WithAttributes(attrs...))
	}
}

// follow has the state of the plugins read whenever somebody reads the figures.
func (o *observer) follow(providers map[string]*provider) (err error) {
	if o == nil || o.figures == nil {
		return nil
	}
	f := o.figures
	f.watch, err = f.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for name, p := range providers {
			st := p.super.Status()
			of := metric.WithAttributes(attrProvider.String(name))
			up := int64(0)
			if st.State == supervisor.Running {
				up = 1
			}
			o.ObserveInt64(f.up, up, of)
			quarantined := int64(0)
			if st.Quarantine != nil {
				quarantined = 1
			}
			o.ObserveInt64(f.isolated, quarantined, of)
			o.ObserveInt64(f.leaving, int64(st.Leaving), of)
			o.ObserveInt64(f.active, int64(st.Calls), of)
			o.ObserveInt64(f.restarts, int64(st.Restarts), of)
			o.ObserveInt64(f.swaps, p.events.Seen(events.Swapped), of)
			o.ObserveInt64(f.dropped, int64(min(st.LogDropped, 1<<62)), of) //nolint:gosec // bounded
		}
		return nil
	}, f.up, f.leaving, f.active, f.restarts, f.swaps, f.dropped, f.isolated)
	if err != nil {
		return fmt.Errorf("host: following its plugins for metrics: %w", err)
	}
	return nil
}

// close ends the reading of what is there no more.
func (o *observer) close() {
	if o != nil && o.figures != nil && o.figures.watch != nil {
		_ = o.figures.watch.Unregister() // nothing can be done about it, and nothing needs to
	}
}
