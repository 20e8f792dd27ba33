package engine

import "testing"

func TestTemplate(t *testing.T) {
	for _, test := range []struct{ method, path, want string }{
		{"POST", "/v1.41/containers/create", "/containers/create"},
		{"POST", "/v1.41/containers/0123456789abcdef/start", "/containers/{id}/start"},
		{"DELETE", "/v1.41/containers/name", "/containers/{id}"},
		{"GET", "/v1.41/containers/json", "/containers/json"},
		{"GET", "/v1.41/images/registry:5000/a/b:latest/json", "/images/{id}/json"},
		{"DELETE", "/v1.41/images/registry:5000/a/b:latest", "/images/{id}"},
		{"GET", "/v1.41/exec/0123/json", "/exec/{id}/json"},
		{"GET", "/v1.41/volumes/version.1", "/volumes/{id}"},
		{"GET", "/_ping", "/_ping"},
		{"GET", "/v1.41/events", "/events"},
		{"GET", "/", "/"},
	} {
		if got := template(test.method, test.path); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.method, test.path, got, test.want)
		}
	}
}
