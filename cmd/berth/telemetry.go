package main

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/host/gateway"
	"github.com/berth-dev/berth/shared/tracing"
)

// traceFlush is how long the end waits for a collector to take the last spans.
const traceFlush = time.Second

// telemetry is what a mode of berth that runs for long tells of itself: traces to
// where the standard variables of OpenTelemetry say, and figures to whoever reads
// its registry.
type telemetry struct {
	traces  *tracing.Exporter
	figures *prometheus.Registry
	meters  *metric.MeterProvider
	logger  hclog.Logger
}

// observe has the host that is opened next, and its plugins, tell of themselves.
func (a *app) observe(ctx context.Context) (*telemetry, error) {
	t := &telemetry{figures: prometheus.NewRegistry(), logger: a.serviceLogger().ResetNamed("berth")}
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(t.figures), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	t.meters = metric.NewMeterProvider(metric.WithReader(reader))
	t.traces, err = tracing.FromEnvironment(ctx, tracing.Service{
		Name: "berth", Version: version,
		Failed: func(err error) { t.logger.Warn(err.Error()) },
	})
	if err != nil { // what clients want goes on without
		a.say("warning: %v", err)
	}
	a.adjust = append(a.adjust, func(c *host.Config) {
		c.TracerProvider, c.MeterProvider = t.traces.Provider(), t.meters
		if c.Logger == nil {
			// Each provider with a level of its own, which can be set while it runs.
			c.Logger = hclog.New(&hclog.LoggerOptions{
				Name: "berth", Level: hclog.Warn, Output: display.Writer{W: a.stderr}, Color: hclog.ColorOff, IndependentLevels: true,
			})
		}
	})
	return t, nil
}

// gateway has a gateway tell of itself too, and serve the figures.
func (t *telemetry) gateway(c *gateway.Config) {
	c.Metrics, c.TracerProvider = t.figures, t.traces.Provider()
}

// end hands over what is left. It delays nobody for long.
func (t *telemetry) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
	defer cancel()
	if err := t.traces.Shutdown(ctx); err != nil {
		t.logger.Warn("the last traces were not taken", "error", err)
	}
	_ = t.meters.Shutdown(ctx) // which reads them for nobody
}
