package tracing

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Text is fit for an attribute: what is not UTF-8 would have the whole batch
// lost that it is exported in.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Attributes returns attrs with each text fit for an attribute and cleaned; clean
// may be nil.
func Attributes(attrs []attribute.KeyValue, clean func(string) string) []attribute.KeyValue {
	text := func(s string) string {
		if clean != nil {
			s = clean(s)
		}
		return Text(s)
	}
	out := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		out[i] = attribute.KeyValue{Key: attribute.Key(text(string(a.Key))), Value: a.Value}
		switch a.Value.Type() {
		case attribute.STRING:
			out[i].Value = attribute.StringValue(text(a.Value.AsString()))
		case attribute.STRINGSLICE:
			texts := a.Value.AsStringSlice()
			for j := range texts {
				texts[j] = text(texts[j])
			}
			out[i].Value = attribute.StringSliceValue(texts)
		case attribute.BYTESLICE:
			out[i].Value = attribute.StringValue(text(string(a.Value.AsByteSlice())))
		case attribute.SLICE, attribute.MAP: // which may hold texts
			out[i].Value = attribute.StringValue(text(a.Value.String()))
		}
	}
	return out
}
