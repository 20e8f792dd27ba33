package engine

import (
	"net/http"
	"slices"
	"strings"

	"github.com/docker/docker/client"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

// withSpanNames names the spans of calls, which the client makes in the trace that
// their context is of, by what is called and not by each container's id.
func withSpanNames() client.Opt {
	return client.WithTraceOptions(otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
		return r.Method + " " + template(r.Method, r.URL.Path)
	}))
}

// actions follow a collection where an id else does.
var actions = []string{"create", "json", "prune", "search", "load", "get"}

// template is an API's path without its version, and with {id} for what is called.
// Names of images hold slashes.
func template(method, path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if strings.HasPrefix(parts[0], "v") && strings.Contains(parts[0], ".") {
		parts = parts[1:]
	}
	switch {
	case len(parts) < 2 || len(parts) == 2 && slices.Contains(actions, parts[1]):
	case len(parts) == 2 || method == http.MethodDelete:
		parts = []string{parts[0], "{id}"}
	default:
		parts = []string{parts[0], "{id}", parts[len(parts)-1]}
	}
	return "/" + strings.Join(parts, "/")
}
