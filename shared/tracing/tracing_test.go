package tracing_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/berth-dev/berth/shared/tracing"
)

func TestAttributesAreCleanAndValid(t *testing.T) {
	const secret = "hush-hush"
	clean := func(s string) string { return strings.ReplaceAll(s, secret, "[redacted]") }
	got := tracing.Attributes([]attribute.KeyValue{
		attribute.String("a", "x "+secret+"\xff"),
		attribute.String("key-"+secret, ""),
		attribute.StringSlice("b", []string{secret, "\xfe"}),
		attribute.ByteSlice("c", []byte("y "+secret+"\xff")),
		attribute.Slice("d", attribute.StringValue(secret)),
		attribute.Map("e", attribute.String("f", secret)),
		attribute.Int("g", 7), attribute.Bool("h", true),
	}, clean)
	for _, a := range got {
		text := string(a.Key) + "=" + a.Value.String()
		if strings.Contains(text, secret) || !utf8.ValidString(text) {
			t.Errorf("%q", text)
		}
	}
	if want := "x [redacted]\uFFFD"; got[0].Value.AsString() != want {
		t.Errorf("%q, want %q", got[0].Value.AsString(), want)
	}
	if got[6].Value.AsInt64() != 7 || !got[7].Value.AsBool() {
		t.Errorf("what is no text changed: %v", got)
	}
	if got := tracing.Attributes([]attribute.KeyValue{attribute.String("a", secret+"\xff")}, nil); got[0].Value.AsString() != secret+"\uFFFD" {
		t.Errorf("without a cleaner: %q", got[0].Value.AsString())
	}
}

// TestWhatIsAskedForAmiss is said, and nothing is exported.
func TestWhatIsAskedForAmiss(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
	exporter, err := tracing.FromEnvironment(t.Context(), tracing.Service{Name: "test"})
	if err == nil || !strings.Contains(err.Error(), `"http/json"`) || exporter.Provider() != nil {
		t.Errorf("%v, %v", exporter, err)
	}
	if err := exporter.Shutdown(t.Context()); err != nil {
		t.Errorf("ending none: %v", err)
	}
}

// TestAnEndpointThatIsNoURL is said without what stands there.
func TestAnEndpointThatIsNoURL(t *testing.T) {
	for _, endpoint := range []string{"http://me:s3cret@host:port", "me:s3cret@host", "127.0.0.1:4318", "collector:4318", "collector"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		exporter, err := tracing.FromEnvironment(t.Context(), tracing.Service{Name: "test"})
		if err == nil || !strings.Contains(err.Error(), "is no URL") || strings.Contains(err.Error(), "s3cret") || exporter.Provider() != nil {
			t.Errorf("%s: %v, %v", endpoint, exporter, err)
		}
	}
}
