package engine

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/pkg/stdcopy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(envSplice); socket != "" {
		os.Exit(splice(socket))
	}
	goleak.VerifyTestMain(m)
}

// envSplice makes this binary stand for the far end of ssh: it connects its
// streams to the socket that the variable names.
const envSplice = "BERTH_TEST_SPLICE"

func splice(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// fake is an engine whose answers a test chooses.
type fake struct {
	mu    sync.Mutex
	asked []string
	// routes answer requests by what the path without its version begins with.
	routes map[string]http.HandlerFunc
}

func newFake() *fake {
	f := &fake{routes: map[string]http.HandlerFunc{}}
	f.route("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Ostype", "linux")
		fmt.Fprint(w, "OK")
	})
	return f
}

func (f *fake) route(path string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes[path] = h
}

// says answers with JSON.
func says(status int, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, content)
	}
}

func (f *fake) count(part string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, request := range f.asked {
		if strings.Contains(request, part) {
			n++
		}
	}
	return n
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1."); ok {
		_, after, _ := strings.Cut(rest, "/")
		path = "/" + after
	}
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	var handler http.HandlerFunc
	longest := -1
	for route, h := range f.routes {
		if strings.HasPrefix(path, route) && len(route) > longest {
			handler, longest = h, len(route)
		}
	}
	f.mu.Unlock()
	if handler == nil {
		says(http.StatusNotFound, `{"message":"page not found"}`)(w, r)
		return
	}
	handler(w, r)
}

// socket returns the path of a socket that does not exist yet. That of
// t.TempDir may be longer than a socket's may be.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth") //nolint:usetesting // short: it is for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve serves on a unix socket, and returns its path.
func serve(t *testing.T, h http.Handler) (path string) {
	t.Helper()
	path = socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return path
}

// wedged is an engine that accepts and never answers.
func wedged(t *testing.T) (path string) {
	t.Helper()
	path = socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
	})
	return path
}

// environment sets the variables that Docker's own client reads, and no others.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, name := range []string{envHost, envContext, envTLSVerify, envCertPath, "DOCKER_API_VERSION"} {
		t.Setenv(name, set[name])
	}
	dir := set[envConfig]
	if dir == "" {
		dir = t.TempDir()
	}
	t.Setenv(envConfig, dir)
}

func openHost(t *testing.T, host string) *Engine {
	t.Helper()
	environment(t, map[string]string{envHost: host})
	return openHere(t)
}

func openHere(t *testing.T) *Engine {
	t.Helper()
	e, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// openFake opens a fake engine over a unix socket.
func openFake(t *testing.T, f *fake) *Engine {
	t.Helper()
	return openHost(t, "unix://"+serve(t, f))
}

// frame is a piece of output as an engine sends it.
func frame(stream stdcopy.StdType, content string) []byte {
	header := []byte{byte(stream), 0, 0, 0}
	return append(binary.BigEndian.AppendUint32(header, uint32(len(content))), content...)
}

// hijacks takes the connection of a request over, as the start of an exec does,
// and hands it on.
func hijacks(t *testing.T, use func(conn net.Conn, in *bufio.Reader)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "tcp" {
			t.Errorf("the start of an exec asks for no stream: %v", r.Header)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		use(conn, rw.Reader)
	}
}

// execs makes the fake answer to an exec whose connection use gets.
func (f *fake) execs(t *testing.T, use func(conn net.Conn, in *bufio.Reader)) {
	f.route("/containers/c/exec", says(http.StatusCreated, `{"Id":"x1"}`))
	f.route("/exec/x1/start", hijacks(t, use))
}

// echo sends the input back when it has ended.
func echo(conn net.Conn, in *bufio.Reader) {
	content, err := io.ReadAll(in)
	if err != nil {
		return
	}
	_, _ = conn.Write(frame(stdcopy.Stdout, string(content)))
	_ = conn.(types.CloseWriter).CloseWrite()
}

// within fails the test if f takes unreasonably long.
func within(t *testing.T, f func()) {
	t.Helper()
	const limit = time.Minute
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("it has not ended within %v", limit)
	}
}
