//go:build gateway

package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestIdle has a session sleep and wake, and be closed and come back, with its files
// and in its container.
func TestIdle(t *testing.T) {
	t.Parallel()
	provider, providers := dockerProvider(t, "busybox", map[string]any{})
	s := serve(t, setup{providers: providers, asRoot: true, gateway: map[string]any{"evict_idle_after": "2s"}})
	c := newRealClient(t, s)
	become := func(state string) (id string) {
		t.Helper()
		eventually(t, "its one container is "+state, func() bool {
			found := containers(t, provider)
			if len(found) != 1 {
				t.Fatalf("there are the containers %v, want one", found)
			}
			var now string
			id, now, _ = strings.Cut(found[0], " ")
			return now == state
		})
		return id
	}
	tells := func(state string) {
		t.Helper()
		eventually(t, "the session is "+state, func() bool {
			return strings.Contains(s.want(t, http.StatusOK, "GET", "/sessions/napper", nil), `"state":"`+state+`"`)
		})
	}
	file := ask{Gateway: s.url, Name: "napper", Do: "read", Path: "a/file"}

	c.do(t, ask{Gateway: s.url, Name: "napper", Do: "write", Path: "a/file", Text: "kept"})
	first := become("exited")
	tells("hibernated")
	if got := c.do(t, file).Stdout; got != "kept" {
		t.Errorf("woken by a read, the file holds %q", got)
	}
	become("exited")
	if got := c.do(t, ask{Gateway: s.url, Name: "napper", Do: "run", Argv: []string{"cat", "a/file"}}); got.Stdout != "kept" || got.ExitCode != 0 {
		t.Errorf("woken by a command: %+v", got)
	}

	// A command that takes longer than that is none of an idle session.
	if got := c.do(t, ask{Gateway: s.url, Name: "napper", Do: "run", Argv: []string{"sh", "-c", "sleep 6; echo done"}}); got.Stdout != "done\n" || got.ExitCode != 0 {
		t.Errorf("a long command: %+v", got)
	}

	// Closed, it stops, and is there for who comes back by its ref.
	s.want(t, http.StatusNoContent, "DELETE", "/sessions/napper", nil)
	become("exited")
	s.want(t, http.StatusNotFound, "GET", "/sessions/napper", nil)
	back := file
	back.Name, back.Ref = "", "napper"
	if got := c.do(t, back).Stdout; got != "kept" {
		t.Errorf("after it was closed the file holds %q", got)
	}
	if id := become("exited"); id != first {
		t.Errorf("its container is %s, and was %s", id, first)
	}

	// Destroyed while it sleeps, nothing is left.
	s.want(t, http.StatusNoContent, "DELETE", "/sessions/napper?purge=true", nil)
	if left := containers(t, provider); len(left) > 0 {
		t.Errorf("purged, and the containers %v are left", left)
	}
	if got := c.begin(t, ask{Gateway: s.url, Ref: "napper", Handle: 1, Do: "read", Path: "a/file"})(); got.Error != "WorkspaceUnavailableError" {
		t.Errorf("an attach after the end: %+v, want WorkspaceUnavailableError", got)
	}
}

// TestFilesAlone is a provider without commands. Pydantic AI's rules begin with a
// command that tells the working directory, and cannot be held against it; a client
// that names whole paths has its files all the same, and is told the truth of commands.
func TestFilesAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, setup{providers: map[string]any{"notes": map[string]any{"plugin": "state", "config": map[string]any{"store": "file:./notes.db"}}}})
	c := newRealClient(t, s)
	c.do(t, ask{Gateway: s.url, Name: "notes", Do: "write", Path: "/a/note", Text: "written"})
	if got := c.do(t, ask{Gateway: s.url, Name: "notes", Handle: 1, Do: "read", Path: "/a/note"}).Stdout; got != "written" {
		t.Errorf("another backend reads %q", got)
	}
	got := c.begin(t, ask{Gateway: s.url, Name: "notes", Do: "run", Argv: []string{"true"}})()
	if got.Error != "HTTPStatusError" || !strings.Contains(got.Message, "501") {
		t.Errorf("a command: %+v, want the status 501", got)
	}
	c.do(t, ask{Gateway: s.url, Name: "notes", Do: "destroy"})
}
