//go:build unix

package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// What is not for the validation, because clients know another answer, is in the
// document all the same.
func TestDocumentSaysWhatIsRefusedElsewhere(t *testing.T) {
	tg := newTestGateway(t)
	document := object(tg.call("", http.MethodGet, openAPIPath, nil).object(http.StatusOK))
	schemas := document.at("components", "schemas")
	said := func(what any, want string) {
		t.Helper()
		text, err := json.Marshal(what)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v\ndoes not say %s", text, err, want)
		}
	}
	said(schemas.at("PathRequest", "properties", "path"), `"pattern":"^/`)
	said(schemas.at("RunRequest", "properties", "argv"), `"prefixItems":[{"minLength":1,"type":"string"}]`)
	said(schemas.at("StartRequest")["oneOf"], `"required":["script"]`)
	paths := document.at("paths")
	said(paths.at("/sessions/{session_id}/files/write", "post"), `"pattern":"^/`)
	said(paths.at("/sessions/{session_id}/files/content", "put"), `"enum":["*"]`)
	said(paths.at("/sessions/{session_id}/files/content", "put"), `"enum":["identity"]`)

	token := tg.open("s")
	for _, command := range []map[string]any{{}, {"argv": []string{}}, {"argv": []string{""}}, {"argv": []string{"true"}, "script": "true"}} {
		if got := tg.call(token, http.MethodPost, "/sessions/s/runs", command); got.status/100 != 4 {
			t.Errorf("%v: %d", command, got.status)
		}
	}
	if got := tg.run(token, "s", map[string]any{"argv": []string{""}}); got.status/100 != 4 {
		t.Errorf("a command without a name: %d", got.status)
	}
}
