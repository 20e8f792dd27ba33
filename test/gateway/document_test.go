//go:build gateway

package gateway_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// examples is how many requests of each operation are made up, besides those that
	// try each bound of the document.
	examples = "20"
	// seed makes them the same every time.
	seed = "20250807"
)

// checks are what is held against every answer: that it is none of a fault, that it
// is in the document, and that what the document forbids is refused.
var checks = []string{
	"not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
	"response_headers_conformance", "line_conformance", "negative_data_rejection", "missing_required_header",
	"unsupported_method", "allow_header_conformance", "ignored_auth",
}

// TestDocument asks whatever the OpenAPI document allows, and what it forbids, and
// holds the answers against it.
func TestDocument(t *testing.T) {
	t.Parallel()
	_, providers := dockerProvider(t, "busybox", map[string]any{})
	s := serve(t, setup{providers: providers, asRoot: true, gateway: map[string]any{"max_sessions": 5, "execute_timeout": 600}})
	for _, id := range []string{"fuzzed", "ended"} {
		s.want(t, http.StatusOK, "POST", "/sessions", map[string]any{"session_id": id})
	}
	s.want(t, http.StatusOK, "POST", "/sessions/fuzzed/run", map[string]any{
		"run_id": strings.Repeat("f", 32),
		"argv":   []string{"sh", "-c", `mkdir folder && echo content >file && ln -s file link && ln -s gone dangling && ln -s loop loop && mkfifo fifo && printf x >folder/"$(printf 'n\377')"`},
	})

	// By ids that nobody makes up, as one digit again and again is: the output of
	// one that is going would be followed to its end.
	for run, argv := range map[string][]string{"0c1d": {"echo", "ended"}, "1c2d": {"cat"}, "2c3d": {"sleep", "600"}} {
		s.want(t, http.StatusAccepted, "POST", "/sessions/fuzzed/runs", map[string]any{
			"run_id": strings.Repeat(run, 8), "argv": argv, "background": true, "stdin": argv[0] == "cat",
		})
	}

	answers := filepath.Join(t.TempDir(), "answers")
	cmd := pythonCommand(t, s, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", s.url+"/openapi.json",
		"--header", "X-Sandbox-Token: "+s.token, "--phases", "coverage,fuzzing", "--checks", strings.Join(checks, ","),
		"--max-examples", examples, "--seed", seed, "--continue-on-failure", "--no-shrink", "--warnings", "off", "--request-timeout", "60")
	cmd.Env = append(cmd.Env, "SCHEMATHESIS_HOOKS=document_hooks", "BERTH_TEST_ANSWERS="+answers, "PYTHONPATH="+cmd.Dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}

	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(s.want(t, http.StatusOK, "GET", "/openapi.json", nil)), &document); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	answered := strings.Split(string(data), "\n")
	t.Logf("%d answers", len(answered)-1)
	for path, methods := range document.Paths {
		for method := range methods {
			operation := strings.ToUpper(method) + " " + path
			if path == "/openapi.json" {
				continue // is asked for otherwise
			}
			if !slices.ContainsFunc(answered, func(a string) bool { return strings.HasPrefix(a, "2") && strings.HasSuffix(a, " "+operation) }) {
				t.Errorf("%s was never answered with a success: nothing of that is checked", operation)
			}
		}
	}
}
