// Package tracing carries traces across the process boundary and out of a
// process. [DialOption] and [ServerOption] make a span of each call of berth.v1
// and pass its context on as W3C's traceparent; [FromEnvironment] exports what
// was recorded to where the standard OTEL_* variables say.
//
// No text of an error stands in a span of a call: what a provider says may hold
// anything (contract B7).
package tracing
