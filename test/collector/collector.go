// Package collector takes the traces that programs under test export, as a collector
// of OpenTelemetry does, by both of its protocols.
package collector

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// patience is for a span that must come: only a test that fails waits for so long.
const patience = 30 * time.Second

// pollInterval is between two looks for it.
const pollInterval = 5 * time.Millisecond

// Collector keeps what it is given.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer

	http *httptest.Server
	grpc net.Addr

	mu    sync.Mutex
	spans []*Span
	raw   strings.Builder
}

// Span is one that a service recorded.
type Span struct {
	*tracepb.Span
	Service string
}

// Start serves until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := new(Collector)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.grpc = l.Addr()
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c.http = httptest.NewServer(http.HandlerFunc(c.post))
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		c.http.Close()
	})
	return c
}

// Environment has programs export here by a protocol, grpc or http/protobuf, and
// soon.
func (c *Collector) Environment(protocol string) map[string]string {
	endpoint := c.http.URL
	if protocol == "grpc" {
		endpoint = "http://" + c.grpc.String()
	}
	return map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
		"OTEL_BSP_SCHEDULE_DELAY": "50", // ms
	}
}

// Export takes spans by gRPC.
func (c *Collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.keep(req)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *Collector) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collectorpb.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.keep(&req)
}

func (c *Collector) keep(req *collectorpb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.WriteString(protojson.Format(req))
	for _, resource := range req.GetResourceSpans() {
		service := text(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, &Span{s, service})
			}
		}
	}
}

// Raw is all that came, as JSON.
func (c *Collector) Raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// Await waits for spans each of which is the child of the one before it, told as
// SERVICE:NAME, where a name that ends with * begins so, and returns the last.
func (c *Collector) Await(t testing.TB, chain ...string) *Span {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		if s := c.Find(chain...); s != nil {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("no trace %s among these spans:%s", strings.Join(chain, " > "), c.names())
		}
	}
}

// Find is Await for those that are there already; nil is none.
func (c *Collector) Find(chain ...string) *Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.below(nil, chain)
}

func (c *Collector) below(parent *Span, chain []string) *Span {
	if len(chain) == 0 {
		return parent
	}
	for _, s := range c.spans {
		if s.is(chain[0]) && (parent == nil || s.childOf(parent)) {
			if last := c.below(s, chain[1:]); last != nil {
				return last
			}
		}
	}
	return nil
}

// Failed are the names of the spans, told as Await has them, whose status is an
// error.
func (c *Collector) Failed() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			list = append(list, s.Service+":"+s.GetName())
		}
	}
	return list
}

func (c *Collector) names() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names strings.Builder
	for _, s := range c.spans {
		fmt.Fprintf(&names, "\n%s:%s %x below %x", s.Service, s.GetName(), s.GetSpanId(), s.GetParentSpanId())
	}
	return names.String()
}

func (s *Span) is(name string) bool {
	own := s.Service + ":" + s.GetName()
	prefix, open := strings.CutSuffix(name, "*")
	return own == name || open && strings.HasPrefix(own, prefix)
}

func (s *Span) childOf(parent *Span) bool {
	return bytes.Equal(s.GetTraceId(), parent.GetTraceId()) && bytes.Equal(s.GetParentSpanId(), parent.GetSpanId())
}

// Text is an attribute that is a text, empty if there is none.
func (s *Span) Text(key string) string { return text(s.GetAttributes(), key) }

// Number is an attribute that is a number, zero if there is none.
func (s *Span) Number(key string) int64 { return value(s.GetAttributes(), key).GetIntValue() }

func text(attrs []*commonpb.KeyValue, key string) string { return value(attrs, key).GetStringValue() }

func value(attrs []*commonpb.KeyValue, key string) *commonpb.AnyValue {
	for _, a := range attrs {
		if a.GetKey() == key {
			return a.GetValue()
		}
	}
	return nil
}
