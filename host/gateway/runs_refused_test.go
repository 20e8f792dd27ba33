//go:build unix

package gateway

import (
	"net/http"
	"strings"
	"testing"
)

func TestRun_Refused(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("demo-1")
	const path = "/sessions/demo-1/run"
	id := `"run_id":"` + someRun + `"`
	for body, loc := range map[string][]any{
		`{"argv":[],` + id + `}`:           {"too_short", "body", "argv"},
		`{"argv":["true"]}`:                {"missing", "body", "run_id"},
		`{` + id + `}`:                     {"missing", "body", "argv"},
		`{"argv":"true",` + id + `}`:       {"list_type", "body", "argv"},
		`{"argv":["true"],"run_id":"abc"}`: {"string_pattern_mismatch", "body", "run_id"},
		`{"argv":["true"],"run_id":"` + strings.ToUpper(someRun[10:]) + `"}`:                            {"string_pattern_mismatch", "body", "run_id"},
		`{"argv":["true"],"timeout_seconds":0,` + id + `}`:                                              {"greater_than", "body", "timeout_seconds"},
		`{"argv":["true"],"timeout_seconds":-1,` + id + `}`:                                             {"greater_than", "body", "timeout_seconds"},
		`{"argv":["true"],"env":{"A":5},` + id + `}`:                                                    {"string_type", "body", "env", "A"},
		`{"argv":["true"],"env":{"A=B":"secret"},` + id + `}`:                                           {"value_error", "body"},
		`{"argv":["true"],"env":{"":"secret"},` + id + `}`:                                              {"value_error", "body"},
		`{"argv":["true"],"env":{"A":"sec\u0000ret"},` + id + `}`:                                       {"value_error", "body"},
		`{"argv":["echo","a\u0000b"],` + id + `}`:                                                       {"value_error", "body"},
		`{"argv":[""],` + id + `}`:                                                                      {"value_error", "body"},
		`{"argv":["echo","` + strings.Repeat("x", 200_000) + `"],` + id + `}`:                           {"value_error", "body"},
		`{"argv":["echo"` + strings.Repeat(`,"`+strings.Repeat("x", 100_000)+`"`, 80) + `],` + id + `}`: {"value_error", "body"},
	} {
		fault := tg.call(token, http.MethodPost, path, body).invalid(loc[0].(string), loc[1:]...)
		if strings.Contains(fault["msg"].(string)+toText(fault["input"]), "sec") {
			t.Errorf("%.100s: a variable's value is told: %v", body, fault)
		}
	}
	for _, body := range []string{`{"argv":["true"],"timeout_seconds":NaN,` + id + `}`, `{`, ``, `null`, `[]`, `"x"`} {
		if got := tg.call(token, http.MethodPost, path, body); got.status != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d: %s", body, got.status, got.body)
		}
	}
	tg.call(token, http.MethodPost, path, `{"argv":["`+strings.Repeat("x", maxRunBody)+`"],`+id+`}`).is(http.StatusRequestEntityTooLarge)

	tg.call(serviceToken, http.MethodPost, "/sessions/none/run", `{"argv":["true"],`+id+`}`).fails(http.StatusNotFound, "No such session: none")
	tg.call("wrong", http.MethodPost, path, `{"argv":["true"],`+id+`}`).is(http.StatusUnauthorized)
	tg.call(tg.open("other"), http.MethodPost, path, `{"argv":["true"],`+id+`}`).is(http.StatusUnauthorized)
	tg.call("", http.MethodPost, path, `{`).is(http.StatusUnauthorized)

	tg.call(token, http.MethodPost, "/sessions/demo-1/runs/abc/stop", nil).invalid("string_pattern_mismatch", "path", "run_id")
	tg.call(token, http.MethodPost, "/sessions/demo-1/runs/"+someRun+"/stop", nil).is(http.StatusNoContent)
	tg.call(serviceToken, http.MethodPost, "/sessions/none/runs/"+someRun+"/stop", nil).fails(http.StatusNotFound, "No such session: none")

	// None of it was taken for a run.
	if runs := tg.call(token, http.MethodGet, "/sessions/demo-1/runs", nil).object(http.StatusOK)["runs"].([]any); len(runs) != 0 {
		t.Errorf("%v", runs)
	}
}

func toText(v any) string {
	s, _ := v.(string)
	return s
}
