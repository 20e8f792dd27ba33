package gateway

import (
	"net/http"
	"testing"
)

// A gateway whose store is gone says so, and no more than that.
func TestAStoreThatFailsIsAPassingFault(t *testing.T) {
	tg := newTestGateway(t)
	tg.open("a")
	tg.broken = true
	if err := tg.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, "/healthz"}, {http.MethodGet, "/"}, {http.MethodGet, "/sessions"}, {http.MethodGet, "/sessions/b"},
		{http.MethodGet, "/sessions/b/events"}, {http.MethodDelete, "/sessions/b"},
	} {
		a := tg.call(serviceToken, c.method, c.path, nil)
		a.object(http.StatusServiceUnavailable)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no word when to try again", a.what)
		}
	}
	tg.call(serviceToken, http.MethodGet, "/policy", nil).is(http.StatusOK)
	tg.call("", http.MethodGet, "/metrics", nil).is(http.StatusOK)
}
