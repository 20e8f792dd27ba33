//go:build !grpcnotrace

package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// FromEnvironment exports traces as the standard variables of OpenTelemetry say,
// or returns nil if they ask for no traces: that takes OTEL_EXPORTER_OTLP_ENDPOINT
// or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. It connects to nothing yet. Spans are
// handed over by a goroutine and dropped where nobody takes them: a collector that
// does not answer delays nothing but the end, by as much as [Exporter.Shutdown]
// is given.
func FromEnvironment(ctx context.Context, service Service) (*Exporter, error) {
	if !wanted() {
		return nil, nil
	}
	if err := checkEndpoint(); err != nil {
		return nil, err
	}
	client, err := newClient()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("exporting traces: %w", err)
	}
	res, err := describe(ctx, service)
	if err != nil {
		return nil, fmt.Errorf("exporting traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&cleanExporter{SpanExporter: exporter, service: service}),
		sdk.WithResource(res),
	)
	return &Exporter{TracerProvider: provider, shutdown: provider.Shutdown}, nil
}

func wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if kind := os.Getenv("OTEL_TRACES_EXPORTER"); kind != "" && kind != "otlp" {
		return false
	}
	return either("ENDPOINT") != ""
}

// either is a variable of the exporter, that for traces before that for all.
func either(name string) string {
	if value := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); value != "" {
		return value
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// checkEndpoint refuses what is no URL. The library would say so on stderr, with all
// that stands there, be it a password, and export to this machine instead.
func checkEndpoint() error {
	u, err := url.Parse(either("ENDPOINT"))
	if err != nil || u.Scheme == "" || u.Host == "" && u.Path == "" {
		return errors.New("exporting traces: OTEL_EXPORTER_OTLP_ENDPOINT is no URL such as http://localhost:4318")
	}
	return nil
}

// newClient reads the rest of the variables itself.
func newClient() (otlptrace.Client, error) {
	switch protocol := either("PROTOCOL"); protocol {
	case "grpc":
		return otlptracegrpc.NewClient(), nil
	case "", "http/protobuf": // OpenTelemetry's default
		return otlptracehttp.NewClient(), nil
	default:
		return nil, fmt.Errorf("exporting traces: OTEL_EXPORTER_OTLP_PROTOCOL is %q: there are grpc and http/protobuf", Text(protocol))
	}
}

func describe(ctx context.Context, service Service) (*resource.Resource, error) {
	own := resource.WithAttributes(semconv.ServiceName(service.Name), semconv.ServiceVersion(service.Version))
	options := []resource.Option{resource.WithTelemetrySDK(), own, resource.WithFromEnv()}
	if service.Own && os.Getenv("OTEL_SERVICE_NAME") == "" {
		options = append(options, own)
	}
	return resource.New(ctx, options...)
}

// cleanExporter exports spans with their texts cleaned, and tells once that they
// are not taken, until they are again.
type cleanExporter struct {
	sdk.SpanExporter
	service Service
	failing atomic.Bool
}

// ExportSpans hands spans over.
func (e *cleanExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	clean := make([]sdk.ReadOnlySpan, len(spans))
	for i, span := range spans {
		clean[i] = cleanSpan{span, e.text}
	}
	err := e.SpanExporter.ExportSpans(ctx, clean)
	if err != nil && !e.failing.Swap(true) && e.service.Failed != nil {
		e.service.Failed(fmt.Errorf("exporting traces, which are dropped: %w", err))
	}
	if err == nil {
		e.failing.Store(false)
	}
	return nil // told: OpenTelemetry would print it
}

func (e *cleanExporter) text(s string) string {
	if e.service.Clean != nil {
		s = e.service.Clean(s)
	}
	return Text(s)
}

// cleanSpan is a span of which each text went through text.
type cleanSpan struct {
	sdk.ReadOnlySpan
	text func(string) string
}

// Name is the span's.
func (s cleanSpan) Name() string { return s.text(s.ReadOnlySpan.Name()) }

// Attributes are the span's.
func (s cleanSpan) Attributes() []attribute.KeyValue {
	return Attributes(s.ReadOnlySpan.Attributes(), s.text)
}

// Status is the span's.
func (s cleanSpan) Status() sdk.Status {
	st := s.ReadOnlySpan.Status()
	st.Description = s.text(st.Description)
	return st
}

// Events are the span's.
func (s cleanSpan) Events() []sdk.Event {
	events := append([]sdk.Event(nil), s.ReadOnlySpan.Events()...)
	for i := range events {
		events[i].Name = s.text(events[i].Name)
		events[i].Attributes = Attributes(events[i].Attributes, s.text)
	}
	return events
}

// Links are the span's.
func (s cleanSpan) Links() []sdk.Link {
	links := append([]sdk.Link(nil), s.ReadOnlySpan.Links()...)
	for i := range links {
		links[i].Attributes = Attributes(links[i].Attributes, s.text)
	}
	return links
}
