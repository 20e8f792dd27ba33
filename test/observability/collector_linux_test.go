package observability_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// patience is for what must come: only a test that fails waits for so long.
const patience = 30 * time.Second

// theCollector takes spans as a real one does, and keeps them.
type theCollector struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*span
	raw   []string // what arrived, as JSON
}

// span is one of a service.
type span struct {
	*tracepb.Span
	service string
}

// attr is the text of an attribute.
func (s *span) attr(key string) string { return text(s.GetAttributes(), key) }

func text(attrs []*common.KeyValue, key string) string {
	for _, a := range attrs {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func startCollector(t *testing.T) (*theCollector, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := new(theCollector)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, "http://" + l.Addr().String()
}

// Export takes spans.
func (c *theCollector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, protojson.Format(req))
	for _, resource := range req.GetResourceSpans() {
		service := text(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, &span{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *theCollector) find(service, name string) *span {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *span) bool { return s.service == service && s.GetName() == name })
	if i < 0 {
		return nil
	}
	return c.spans[i]
}

// await returns a service's span of a name, the first that came.
func (c *theCollector) await(t *testing.T, service, name string) *span {
	t.Helper()
	var s *span
	waitFor(t, func() bool { s = c.find(service, name); return s != nil }, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		text := "no span " + name + " of " + service + " among"
		for _, s := range c.spans {
			text += " " + s.service + ":" + s.GetName()
		}
		return text
	})
	return s
}

func waitFor(t *testing.T, there func() bool, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); {
		if time.Now().After(deadline) {
			t.Fatal(what())
		}
		time.Sleep(5 * time.Millisecond)
	}
}
