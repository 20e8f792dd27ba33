//go:build gateway

package gateway_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// TestStored reads the files of sessions whose containers are stopped, one that sleeps
// and one that was closed, and starts neither.
func TestStored(t *testing.T) {
	t.Parallel()
	provider, providers := dockerProvider(t, "busybox", map[string]any{})
	s := serve(t, setup{providers: providers, asRoot: true, gateway: map[string]any{"evict_idle_after": "2s"}})
	for _, id := range []string{"sleeps", "closed"} {
		s.want(t, http.StatusOK, "POST", "/sessions", map[string]any{"session_id": id})
		s.want(t, http.StatusOK, "POST", "/sessions/"+id+"/run", map[string]any{
			"run_id": strings.Repeat("a", 32),
			"argv":   []string{"sh", "-c", `mkdir -p a/b && printf 'one\ntwo\n' >a/file && printf '\377' >a/b/bytes && ln -s file a/link`},
		})
	}
	s.want(t, http.StatusNoContent, "DELETE", "/sessions/closed", nil)
	asleep := func() bool {
		found := containers(t, provider)
		if len(found) != 2 {
			t.Fatalf("there are the containers %v, want two", found)
		}
		return strings.HasSuffix(found[0], " exited") && strings.HasSuffix(found[1], " exited")
	}
	eventually(t, "both containers are stopped", asleep)

	for _, id := range []string{"sleeps", "closed"} {
		for _, test := range []struct {
			call string
			in   map[string]any
			says []string
		}{
			{"ls", map[string]any{"path": "a"}, []string{`"name":"file"`, `"path":"a/file"`, `"size":8`, `"name":"b"`}},
			{"tree", map[string]any{}, []string{`"path":"a/b/bytes"`, `"truncated":false`}},
			{"read", map[string]any{"path": "a/file"}, []string{`"content":"one\ntwo"`}},
			{"read", map[string]any{"path": "a/file", "offset": 1}, []string{`"content":"two"`}},
			{"read_bytes", map[string]any{"path": "a/b/bytes"}, []string{`"content_b64":"` + base64.StdEncoding.EncodeToString([]byte{0xff}) + `"`}},
		} {
			got := s.want(t, http.StatusOK, "POST", "/workspaces/"+id+"/"+test.call, test.in)
			for _, say := range test.says {
				if !strings.Contains(got, say) {
					t.Errorf("%s of %s: %s\ndoes not say %s", test.call, id, got, say)
				}
			}
			if strings.Contains(got, "link") {
				t.Errorf("%s of %s tells of a link: %s", test.call, id, got)
			}
		}
		s.want(t, http.StatusNotFound, "POST", "/workspaces/"+id+"/read", map[string]any{"path": "gone"})
		s.want(t, http.StatusNotFound, "POST", "/workspaces/"+id+"/ls", map[string]any{"path": "a/file"})
		s.want(t, http.StatusBadRequest, "POST", "/workspaces/"+id+"/read", map[string]any{"path": "a/link"})
		s.want(t, http.StatusBadRequest, "POST", "/workspaces/"+id+"/read", map[string]any{"path": "../etc/passwd"})
	}
	trees := s.want(t, http.StatusOK, "POST", "/workspaces/trees", map[string]any{"sessions": []string{"sleeps", "closed", "nobody"}})
	if strings.Count(trees, `"path":"a/b/bytes"`) != 2 || !strings.Contains(trees, `"status_code":404`) {
		t.Errorf("trees: %s", trees)
	}
	if !asleep() {
		t.Error("a container was started to read what it keeps")
	}
	for _, id := range []string{"sleeps", "closed"} {
		if id == "closed" {
			s.want(t, http.StatusOK, "POST", "/sessions", map[string]any{"session_id": id, "attach": true})
		}
		s.want(t, http.StatusNoContent, "DELETE", "/sessions/"+id+"?purge=true", nil)
	}
}
