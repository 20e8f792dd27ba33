package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestIndexAndHealth(t *testing.T) {
	three := 3
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxSessions = &three })
	tg.open("a")
	health := tg.call("", http.MethodGet, "/healthz", nil).object(http.StatusOK)
	want := map[string]any{
		"status": "ok", "sessions": 1., "limit": 3., "open_sessions": 1., "open_limit": nil, "runtimes": []any{"folder", "other"},
	}
	if !reflect.DeepEqual(health, want) {
		t.Errorf("%v\nwant %v", health, want)
	}
	index := tg.call("", http.MethodGet, "/", nil).object(http.StatusOK)
	endpoints := index["endpoints"].([]any)
	for _, path := range []any{"/", "/healthz", "/metrics", "/openapi.json", "/policy", "/sessions", "/sessions/{session_id}", "/sessions/{session_id}/events"} {
		if !slices.Contains(endpoints, path) {
			t.Errorf("%s is not among %v", path, endpoints)
		}
	}
	delete(index, "endpoints")
	if want := map[string]any{
		"service": "sandboxd", "implementation": "berth test", "health": health, "docs_url": nil, "openapi_url": "/openapi.json", "ui_url": nil,
	}; !reflect.DeepEqual(index, want) {
		t.Errorf("%v\nwant %v", index, want)
	}
}

func TestMetricsCountRequestsAndSessions(t *testing.T) {
	tg := newTestGateway(t)
	tg.open("a-name-of-a-session")
	tg.call(serviceToken, http.MethodGet, "/sessions/none", nil).is(http.StatusNotFound)
	tg.call("", http.MethodGet, "/nowhere", nil).is(http.StatusNotFound)
	ended := tg.metrics.runBegan()
	a := tg.call("", http.MethodGet, "/metrics", nil).is(http.StatusOK)
	ended(runFailed)
	for i, script := range []string{"exit 3", "sleep 60", "exit 0"} {
		tg.call(serviceToken, http.MethodPost, "/sessions/a-name-of-a-session/run", map[string]any{
			"argv": []string{"sh", "-c", script}, "run_id": fmt.Sprintf("%032x", i), "timeout_seconds": 1 + 59*((i+1)%2),
		}).is(http.StatusOK)
	}
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
		t.Errorf("the content type is %q", got)
	}
	for _, line := range []string{
		`berth_gateway_requests_total{operation="POST /sessions",status="200"} 1`,
		`berth_gateway_requests_total{operation="GET /sessions/{session_id}",status="404"} 1`,
		`berth_gateway_requests_total{operation="none",status="404"} 1`,
		`berth_gateway_request_duration_seconds_count{operation="POST /sessions"} 1`,
		`berth_gateway_sessions{state="running"} 1`,
		`berth_gateway_sessions{state="hibernated"} 0`,
		"berth_gateway_requests_in_flight 1",
		"berth_gateway_runs_active 1",
		"go_goroutines ",
	} {
		if !strings.Contains(string(a.body), "\n"+line) {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(string(a.body), "a-name-of-a-session") {
		t.Error("a session is named")
	}
	after := string(tg.call("", http.MethodGet, "/metrics", nil).body)
	for _, line := range []string{
		"berth_gateway_runs_active 0", `berth_gateway_runs_total{outcome="exited"} 2`, `berth_gateway_runs_total{outcome="timed_out"} 1`,
		`berth_gateway_runs_total{outcome="failed"} 1`, "berth_gateway_run_duration_seconds_count 4",
	} {
		if !strings.Contains(after, "\n"+line) {
			t.Errorf("no line %s", line)
		}
	}
}

// operations are those of the API, with who may call each.
var operations = map[string]access{
	"GET /":                             byAnyone,
	"GET /healthz":                      byAnyone,
	"GET /metrics":                      byAnyone,
	"GET /openapi.json":                 byAnyone,
	"GET /policy":                       byService,
	"PUT /policy":                       byService,
	"POST /sessions":                    byService,
	"GET /sessions":                     byService,
	"GET /sessions/{session_id}":        bySession,
	"DELETE /sessions/{session_id}":     bySession,
	"GET /sessions/{session_id}/events": bySession,

	"POST /sessions/{session_id}/run":                  bySession,
	"POST /sessions/{session_id}/runs/{run_id}/stop":   bySession,
	"GET /sessions/{session_id}/runs":                  bySession,
	"POST /sessions/{session_id}/runs":                 bySession,
	"GET /sessions/{session_id}/runs/{run_id}/output":  bySession,
	"POST /sessions/{session_id}/runs/{run_id}/stdin":  bySession,
	"POST /sessions/{session_id}/runs/{run_id}/signal": bySession,

	"POST /sessions/{session_id}/files/read":     bySession,
	"POST /sessions/{session_id}/files/write":    bySession,
	"POST /sessions/{session_id}/files/stat":     bySession,
	"POST /sessions/{session_id}/files/list":     bySession,
	"POST /sessions/{session_id}/files/mkdir":    bySession,
	"POST /sessions/{session_id}/files/remove":   bySession,
	"POST /sessions/{session_id}/files/realpath": bySession,
	"GET /sessions/{session_id}/files/content":   bySession,
	"HEAD /sessions/{session_id}/files/content":  bySession,
	"PUT /sessions/{session_id}/files/content":   bySession,

	"POST /workspaces/{session_id}/ls":         byService,
	"POST /workspaces/{session_id}/tree":       byService,
	"POST /workspaces/{session_id}/read":       byService,
	"POST /workspaces/{session_id}/read_bytes": byService,
	"POST /workspaces/trees":                   byService,
}

// document is the OpenAPI document, as far as these tests look at it.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Security    []map[string][]string
		Parameters  []struct{ Name, In string }
		Responses   map[string]struct {
			Description string
			Content     map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func (tg *testGateway) openAPI() document {
	tg.t.Helper()
	var d document
	if err := json.Unmarshal(tg.call("", http.MethodGet, "/openapi.json", nil).is(http.StatusOK).body, &d); err != nil {
		tg.t.Fatal(err)
	}
	return d
}

func TestOpenAPIDocumentHoldsEveryOperation(t *testing.T) {
	tg := newTestGateway(t)
	d := tg.openAPI()
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("version %s", d.OpenAPI)
	}
	found := make(map[string]bool)
	ids := make(map[string]bool)
	for path, methods := range d.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			found[name] = true
			if ids[op.OperationID] {
				t.Errorf("%s: the id %s is another's too", name, op.OperationID)
			}
			ids[op.OperationID] = true
			if _, ok := op.Responses["default"]; ok {
				t.Errorf("%s: answers by default", name)
			}
			for status, response := range op.Responses {
				if _, isProblem := response.Content["application/problem+json"]; isProblem || response.Description == "" {
					t.Errorf("%s: %s is not one of the wire's", name, status)
				}
			}
			who, ok := operations[name]
			if !ok {
				t.Errorf("%s is in no table: add who may call it", name)
			}
			if secured := len(op.Security) > 0; secured != (who != byAnyone) {
				t.Errorf("%s: security %v", name, op.Security)
			}
			for _, segment := range strings.Split(path, "/") {
				name, isParameter := strings.CutPrefix(segment, "{")
				if isParameter && !slices.Contains(op.Parameters, struct{ Name, In string }{strings.TrimSuffix(name, "}"), "path"}) {
					t.Errorf("%s %s: nobody reads %s", method, path, segment)
				}
			}
			for status, when := range map[string]bool{"401": who != byAnyone, "404": who == bySession, "500": true} {
				if _, told := op.Responses[status]; when && !told {
					t.Errorf("%s: does not tell of %s", name, status)
				}
			}
		}
	}
	for name := range operations {
		if !found[name] {
			t.Errorf("%s is not there", name)
		}
	}
	for schema, want := range map[string]string{
		"CreateSession": `"runtime":{"description":"One of the runtimes of the policy; its default without one","enum":[null,"folder","other"]`,
		"TreeRequest":   `"default":".","description":"Relative to the working directory, or absolute in it","type":["string","null"]`,
		"PolicyUpdate":  `"default_runtime":{"description":"An alias; null leaves it","enum":[null,"folder","other"]`,
	} {
		if !strings.Contains(string(d.Components.Schemas[schema]), want) {
			t.Errorf("%s: %s\nwithout %s", schema, d.Components.Schemas[schema], want)
		}
	}
	for name := range d.Components.Schemas {
		if strings.HasPrefix(name, "Error") {
			t.Errorf("the schema %s is the library's own", name)
		}
	}
}

// Whoever may not call an operation is told so, whatever else is wrong.
func TestEveryOperationAsksForItsToken(t *testing.T) {
	tg := newTestGateway(t)
	own := tg.open("mine")
	for name, who := range operations {
		method, path, _ := strings.Cut(name, " ")
		path = strings.NewReplacer("{session_id}", "theirs", "{run_id}", "x").Replace(path)
		if who == byAnyone {
			tg.call("", method, path, nil).is(http.StatusOK)
			continue
		}
		for _, token := range []string{"", "wrong", own} {
			a := tg.call(token, method, path, `{`)
			if a.status != http.StatusUnauthorized || method != http.MethodHead && !strings.Contains(string(a.body), invalidToken) {
				t.Errorf("%s with the token %.5q: %d %s", name, token, a.status, a.body)
			}
		}
	}
}
