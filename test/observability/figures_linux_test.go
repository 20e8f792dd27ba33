package observability_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// figures are read as text: the name, and the values of the labels but the provider's.
func figures(t *testing.T, reader metric.Reader) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int64)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, n int64) {
				key := []string{m.Name}
				for _, a := range set.ToSlice() {
					if a.Key != "berth.provider" {
						key = append(key, a.Value.AsString())
					}
				}
				found[strings.Join(key, " ")] = n
			}
			switch points := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range points.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range points.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range points.DataPoints {
					add(p.Attributes, int64(p.Count)) //nolint:gosec // few
				}
			default:
				t.Errorf("%s: %T", m.Name, m.Data)
			}
		}
	}
	return found
}

func TestFigures(t *testing.T) {
	reader := metric.NewManualReader()
	h, ws := open(t, current, func(c *host.Config, _ *host.Provider) {
		c.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	})
	if got := figures(t, reader); got["berth.plugin.up"] != 0 || len(got) == 0 {
		t.Errorf("before anything: %v", got)
	}
	if err := ws.WriteFile(t.Context(), "a", []byte("12345")); err != nil {
		t.Fatal(err)
	}
	r, err := ws.Open(t.Context(), "a", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := ws.Start(t.Context(), workspace.Command{Script: "cat", Stdin: strings.NewReader("123"), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Stat(t.Context(), "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	status := h.Providers()[0]
	plugin, err := os.FindProcess(status.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return h.Providers()[0].PID != status.PID }, func() string { return "the plugin did not end" })
	if _, err := ws.Stat(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := h.Reload(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	got := figures(t, reader)
	for name, want := range map[string]int64{
		"berth.operations write":          1,
		"berth.operations read":           1,
		"berth.operations start":          1,
		"berth.operations stat":           1,
		"berth.operations stat not_exist": 1,
		"berth.operations create":         1,
		"berth.operations start_plugin":   3,
		"berth.operation.duration stat":   2,
		"berth.io in":                     8,
		"berth.io out":                    8,
		"berth.workspaces.opened create":  1,
		"berth.plugin.up":                 1,
		"berth.plugin.restarts":           1,
		"berth.plugin.swaps":              1,
		"berth.plugin.calls.active":       0,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %d, want %d; all: %v", name, n, want, got)
		}
	}
	documented(t, slices.Collect(maps.Keys(got)))
}

// documented compares the figures that there are with the table in the documentation.
func documented(t *testing.T, keys []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n## Figures\n"))
	var table, registered []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(berth\\.[a-z.]+)` \\|").FindAllSubmatch(text, -1) {
		table = append(table, string(row[1]))
	}
	for _, key := range keys {
		name, _, _ := strings.Cut(key, " ")
		registered = append(registered, name)
	}
	slices.Sort(table)
	slices.Sort(registered)
	if registered = slices.Compact(registered); !slices.Equal(table, registered) {
		t.Errorf("docs/observability.md has a table of %v, there are %v", table, registered)
	}
}
