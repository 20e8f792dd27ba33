//go:build gateway

package gateway_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/docker/enginetest"
	"github.com/berth-dev/berth/test/gateway/postgres"
)

// shared are gateways with one store: PostgreSQL.
type shared struct {
	with     setup
	provider string
	one, two *server
	client   *realClient
}

// newShared starts two gateways on one provider.
func newShared(t *testing.T) *shared {
	t.Helper()
	g := &shared{}
	g.with.gateway = map[string]any{"store": postgres.Start(t)}
	g.provider, g.with.providers = dockerProvider(t, "busybox", map[string]any{})
	g.with.asRoot, g.with.token = true, rand.Text()
	g.one, g.two = serve(t, g.with), serve(t, g.with)
	g.client = newRealClient(t, g.one)
	return g
}

// runID is a new one.
func runID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func TestShared_OpenedOnOneAndUsedThroughTheOther(t *testing.T) {
	t.Parallel()
	g := newShared(t)
	ref := g.client.do(t, ask{Gateway: g.one.url, Do: "write", Path: "a/file", Text: "written through one"}).Ref
	if got := g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "read", Path: "a/file"}); got.Stdout != "written through one" || got.Ref != ref {
		t.Errorf("the other reads %q of %s, want it of %s", got.Stdout, got.Ref, ref)
	}
	if got := g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "run", Argv: []string{"cat", "a/file"}}); got.Stdout != "written through one" {
		t.Errorf("a command through the other reads %q", got.Stdout)
	}

	// A command that one runs is listed and stopped through the other.
	id := runID()
	answered := make(chan string, 1)
	go func() {
		_, body, err := g.one.try(t.Context(), "POST", "/sessions/"+ref+"/run", map[string]any{"argv": []string{"sleep", "600"}, "run_id": id})
		if err != nil {
			body = err.Error()
		}
		answered <- body
	}()
	eventually(t, "the run is listed by the other", func() bool {
		return strings.Contains(g.two.want(t, http.StatusOK, "GET", "/sessions/"+ref+"/runs", nil), id)
	})
	g.two.want(t, http.StatusNoContent, "POST", "/sessions/"+ref+"/runs/"+id+"/stop", nil)
	if body := <-answered; !strings.Contains(body, `"exit_code":143`) {
		t.Errorf("the stopped run is answered with %s", body)
	}

	// Destroyed through the other, it is gone for both.
	g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "destroy"})
	if got := g.client.begin(t, ask{Gateway: g.one.url, Ref: ref, Do: "run", Argv: []string{"true"}})(); got.Error != "WorkspaceUnavailableError" {
		t.Errorf("after the end through the other: %+v, want WorkspaceUnavailableError", got)
	}
	if left := containers(t, g.provider); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

func TestShared_ManyOpensOfOneNameMakeOne(t *testing.T) {
	t.Parallel()
	g := newShared(t)
	const opens = 20
	outcomes := make([]func() reply, opens)
	for i := range outcomes {
		gateway := g.one
		if i%2 == 1 {
			gateway = g.two
		}
		outcomes[i] = g.client.begin(t, ask{Gateway: gateway.url, Name: "raced", Handle: i + 1, Do: "run", Argv: []string{"hostname"}})
	}
	hosts := map[string]int{}
	for _, outcome := range outcomes {
		r := outcome()
		if r.Error != "" || r.Ref != "raced" {
			t.Errorf("an open: %+v", r)
		}
		hosts[r.Stdout]++
	}
	if made := containers(t, g.provider); len(hosts) != 1 || len(made) != 1 {
		t.Errorf("%d opens of one name reached %d workspaces, and made the containers %v", opens, len(hosts), made)
	}
	g.client.do(t, ask{Gateway: g.two.url, Name: "raced", Do: "destroy"})
	if left := containers(t, g.provider); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

func TestShared_KilledInMidRun(t *testing.T) {
	t.Parallel()
	g := newShared(t)
	ref := g.client.do(t, ask{Gateway: g.one.url, Do: "write", Path: "file", Text: "kept"}).Ref
	running := g.client.begin(t, ask{Gateway: g.one.url, Ref: ref, Do: "run", Argv: []string{"sh", "-c", "echo $$ >pid; exec sleep 600"}})
	var pid string
	eventually(t, "the command has begun", func() bool {
		r := g.client.begin(t, ask{Gateway: g.two.url, Ref: ref, Do: "read", Path: "pid"})()
		pid = strings.TrimSpace(r.Stdout)
		return r.Error == "" && pid != ""
	})
	g.one.kill(t)
	if r := running(); r.Error == "" || r.Error == "WorkspaceUnavailableError" {
		t.Errorf("the command of the killed gateway came out as %+v, want a fault of the connection", r)
	}
	// The other has the session at once, and ends what the killed one ran.
	if got := g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "run", Argv: []string{"cat", "file"}}); got.Stdout != "kept" {
		t.Errorf("through the other the file holds %q", got.Stdout)
	}
	eventually(t, "what the killed gateway ran has ended", func() bool {
		return g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "run", Argv: []string{"kill", "-0", pid}}).ExitCode != 0
	})
	eventually(t, "the other does not list it any more", func() bool {
		return !strings.Contains(g.two.want(t, http.StatusOK, "GET", "/sessions/"+ref+"/runs", nil), `"running":true`)
	})
	g.client.do(t, ask{Gateway: g.two.url, Ref: ref, Do: "destroy"})
	if left := containers(t, g.provider); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

func TestShared_KilledInMidCreate(t *testing.T) {
	t.Parallel()
	g := newShared(t)
	for _, c := range []struct {
		name    string
		session map[string]any // what the killed one was asked to open
	}{
		{"of a name", map[string]any{"session_id": "half-made", "reuse": true}},
		{"of none", map[string]any{}},
	} {
		// One after the other: each counts containers.
		t.Run(c.name, func(t *testing.T) {
			engine := newSlowEngine(t)
			with := g.with
			with.env = append([]string{"DOCKER_HOST=" + engine.address}, with.env...)
			doomed := serve(t, with)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				_, _, _ = doomed.try(t.Context(), "POST", "/sessions", c.session) // which is cut off
			}()
			select {
			case <-engine.made: // and nobody knows yet
			case <-time.After(patience):
				t.Fatal("no container is made")
			}
			if made := containers(t, g.provider); len(made) != 1 {
				t.Fatalf("in mid-create there are the containers %v, want one", made)
			}
			doomed.kill(t)
			<-answered
			if name := c.session["session_id"]; name != nil {
				// It is taken over, when the killed one's lease has run out.
				if got := g.client.do(t, ask{Gateway: g.two.url, Name: name.(string), Do: "run", Argv: []string{"echo", "usable"}}); got.Stdout != "usable\n" {
					t.Errorf("a command in it says %q", got.Stdout)
				}
				if made := containers(t, g.provider); len(made) != 1 {
					t.Errorf("taken over, there are the containers %v, want one", made)
				}
				g.client.do(t, ask{Gateway: g.one.url, Name: name.(string), Do: "destroy"})
			}
			eventually(t, "nothing is left behind", func() bool { return len(containers(t, g.provider)) == 0 })
			if body := g.one.want(t, http.StatusOK, "GET", "/sessions", nil); !strings.Contains(body, `"sessions":[]`) {
				t.Errorf("there are sessions: %s", body)
			}
		})
	}
}

// slowEngine stands before the container engine and never gives the answer of a
// create.
type slowEngine struct {
	address string        // as DOCKER_HOST takes it
	made    chan struct{} // closed when a container is
}

var createPath = regexp.MustCompile(`/containers/create$`)

func newSlowEngine(t *testing.T) *slowEngine {
	t.Helper()
	e := &slowEngine{made: make(chan struct{})}
	engine := enginetest.Client(t)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return engine.Dialer()(ctx) }}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.Transport = transport
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	var once sync.Once
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !createPath.MatchString(r.URL.Path) {
			proxy.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		ctx := context.WithoutCancel(r.Context())
		proxy.ServeHTTP(answer, r.WithContext(ctx))
		if answer.Code != http.StatusCreated {
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		once.Do(func() { close(e.made) })
		<-r.Context().Done()
	}))
	dir, err := os.MkdirTemp("/tmp", "berth-gw-") //nolint:usetesting // a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "engine")
	server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	e.address = "unix://" + path
	return e
}
