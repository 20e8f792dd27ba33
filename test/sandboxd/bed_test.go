//go:build sandboxd

package sandboxd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// provider is the configured provider's name in these tests.
const provider = "rented"

// patience is how long something may take that should take no time, on a loaded
// machine.
const patience = 2 * time.Minute

// bed is a service, what stands before it, and a host.
type bed struct {
	service *sandboxdtest.Service
	front   *front
	config  map[string]any
	host    *host.Host
	log     *safeBuffer
	keeps   bool // the service keeps the files of sessions that it has closed
}

func newBed(t testing.TB, settings sandboxdtest.Settings, extra map[string]any) *bed {
	t.Helper()
	b := &bed{service: sandboxdtest.Start(t, settings), log: &safeBuffer{}}
	b.front = newFront(t, b.service.URL)
	b.config = map[string]any{"service_url": b.front.server.URL, "token": b.service.Token}
	maps.Copy(b.config, extra)
	b.host = b.newHost(t, nil)
	return b
}

// newHost is another host of the same provider, with some keys changed.
func (b *bed) newHost(t testing.TB, changed map[string]any) *host.Host {
	t.Helper()
	config := maps.Clone(b.config)
	maps.Copy(config, changed)
	maps.DeleteFunc(config, func(_ string, value any) bool { return value == nil })
	h, err := host.New(host.Config{
		PluginDirs: []string{bin},
		Providers:  map[string]host.Provider{provider: {Plugin: "sandboxd", Config: config}},
		Logger:     hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: b.log}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

// open opens a workspace.
func (b *bed) open(t testing.TB, options ...workspace.Option) (workspace.Workspace, workspace.Ref) {
	t.Helper()
	ws, err := b.host.Workspace(provider, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.WorkingDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	return ws, ref
}

// script runs a script that must succeed, and returns its output.
func script(t testing.TB, ws workspace.Workspace, text string) string {
	t.Helper()
	res, err := ws.Run(t.Context(), workspace.Command{Script: text})
	if err != nil {
		t.Fatalf("script %q: %v", text, err)
	}
	if res.ExitCode != 0 {
		t.Fatalf("script %q: exit code %d: %s", text, res.ExitCode, res.StderrText())
	}
	return res.StdoutText()
}

// killPlugin kills the plugin that serves a host.
func killPlugin(t testing.TB, h *host.Host) {
	t.Helper()
	pid := h.Providers()[0].PID
	if pid == 0 {
		return // it is being started again
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// eventually waits until is holds.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// front stands before the service, sees what is asked of it, and can be as slow and as
// broken as a network.
type front struct {
	server *httptest.Server

	mu       sync.Mutex
	requests map[string]int // by method and the last words of the path
	create   time.Duration  // before each session is opened
	every    time.Duration  // before each answer
	cut      chan struct{}  // closed: runs that are under way lose their connection
	refuses  bool           // no run gets through
	lost     int            // how many of the next runs lose the beginning of their output
	drop     int            // how much of it; all if zero
}

func newFront(t testing.TB, service string) *front {
	t.Helper()
	target, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{requests: map[string]int{}, cut: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	// A connection that waits for the next request is closed by the service at some time:
	// perhaps as that is sent, which is then lost.
	transport := &http.Transport{DisableKeepAlives: true}
	proxy.Transport = transport
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { abort(w) }
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests[kind(r)]++
		delay, cut, refuses := f.every, f.cut, f.refuses
		if r.Method == http.MethodPost && r.URL.Path == "/sessions" {
			delay += f.create
		}
		f.mu.Unlock()
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
		if kind(r) != "POST run" {
			proxy.ServeHTTP(w, r)
			return
		}
		if refuses {
			abort(w)
			return
		}
		// The service is to answer, whoever hears it.
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		answer := httptest.NewRecorder()
		done := make(chan struct{})
		broken := true
		go func() {
			defer close(done)
			defer cancel()
			defer func() { _ = recover() }() // of an answer that breaks off
			proxy.ServeHTTP(answer, r.WithContext(ctx))
			broken = false
		}()
		select {
		case <-done:
			if broken {
				abort(w)
				return
			}
			body := f.lose(answer.Body.Bytes())
			maps.Copy(w.Header(), answer.Header())
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body)
		case <-cut:
			abort(w)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// kind is a request without the ids in its path.
func kind(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	return r.Method + " " + parts[len(parts)-1]
}

// abort resets the connection.
func abort(w http.ResponseWriter) {
	hijacker, ok := w.(http.Hijacker)
	if !ok { // a recorder
		panic(http.ErrAbortHandler)
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// asked is how often something was asked so far.
func (f *front) asked(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[kind]
}

// slow delays what comes from here on.
func (f *front) slow(create, every time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create, f.every = create, every
}

// loses has the beginning of the output be lost of the next runs, or all of it, as the
// service does on a loaded machine.
func (f *front) loses(runs, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost, f.drop = runs, most
}

// lose returns an answer to a run as it comes.
func (f *front) lose(body []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ran map[string]any
	if f.lost == 0 || json.Unmarshal(body, &ran) != nil {
		return body
	}
	f.lost--
	stdout, _ := ran["stdout"].(string)
	ran["stderr"] = ""
	if f.drop == 0 || f.drop > len(stdout) {
		ran["stdout"] = ""
	} else {
		ran["stdout"] = stdout[f.drop:]
	}
	if text, err := json.Marshal(ran); err == nil {
		body = text
	}
	return body
}

// refuse lets no other run get through. Those that are under way go on.
func (f *front) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = true
}

// reset resets the connections of the runs that are under way.
func (f *front) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}
