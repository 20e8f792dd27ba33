package observability_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/collector"
)

// BenchmarkObserved is what it costs to be observed: with off, nothing is.
func BenchmarkObserved(b *testing.B) {
	for _, how := range []string{"off", "figures", "traces"} {
		b.Run(how, func(b *testing.B) {
			_, ws := open(b, current, func(c *host.Config, _ *host.Provider) {
				switch how {
				case "figures":
					c.MeterProvider = metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
				case "traces":
					for name, value := range collector.Start(b).Environment("grpc") {
						b.Setenv(name, value)
					}
					c.TracerProvider = sdk.NewTracerProvider() // the plugin is who exports
				}
			})
			if err := ws.WriteFile(b.Context(), "a", nil); err != nil {
				b.Fatal(err)
			}
			b.Run("stat", func(b *testing.B) {
				for b.Loop() {
					if _, err := ws.Stat(b.Context(), "a"); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("noop", func(b *testing.B) {
				for b.Loop() {
					if _, err := ws.Run(b.Context(), workspace.Command{Args: []string{"true"}}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
