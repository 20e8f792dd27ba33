//go:build gateway

package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

const (
	// patience is how long something may take that should take no time, on a loaded
	// machine.
	patience = 2 * time.Minute
	// nobody is who berth is where tests are run by root and it needs no more.
	nobody = 65534
)

// setup is what a gateway is started with.
type setup struct {
	providers map[string]any // the section of that name
	gateway   map[string]any // the section of that name, but for token and address
	token     string         // a new one if empty
	env       []string       // besides what it needs
	groups    []uint32       // of an unprivileged berth, besides its own
	asRoot    bool           // berth is root if the tests are: else it is not
	// containers are those of its provider, if it has any.
	containers func(*testing.T) []string
}

// server is a process of `berth serve`.
type server struct {
	url, token string
	dir        string // of its configuration, its store and all that it leaves
	cmd        *exec.Cmd
	ended      chan struct{} // closed when it has
	log        *output
}

// output keeps what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// serve starts a gateway, and waits until it serves. It ends with the test, which
// fails if it does not end well or leaves anything of its own behind.
func serve(t testing.TB, with setup) *server {
	t.Helper()
	s := &server{token: with.token, log: &output{}, ended: make(chan struct{})}
	if s.token == "" {
		s.token = rand.Text()
	}
	// Short, for there are sockets in it, and open to who berth is.
	dir, err := os.MkdirTemp("/tmp", "berth-gw-") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.dir = dir
	section := map[string]any{"listen": "127.0.0.1:0", "store": "sqlite:./sessions.db"}
	for key, value := range with.gateway {
		section[key] = value
	}
	// JSON is YAML too.
	config, err := json.Marshal(map[string]any{"plugin_dirs": []string{bin}, "providers": with.providers, "gateway": section})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "berth.yaml"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}

	// Not bound to the test's context, which ends before it is told to end.
	s.cmd = exec.Command(filepath.Join(bin, "berth"), "serve") //nolint:noctx // as said
	s.cmd.Dir = dir
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), "BERTH_TOKEN=" + s.token}
	if host, ok := os.LookupEnv(client.EnvOverrideHost); ok {
		s.cmd.Env = append(s.cmd.Env, client.EnvOverrideHost+"="+host)
	}
	s.cmd.Env = append(s.cmd.Env, with.env...)
	s.cmd.Stderr = s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what a terminal sends to the tests is not for it
	if os.Geteuid() == 0 && !with.asRoot {
		s.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: with.groups}
		for _, path := range []string{dir, filepath.Join(dir, "tmp")} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan string, 1)
	go func() {
		defer close(s.ended)
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadString('\n')
		serving <- strings.TrimSpace(strings.TrimPrefix(line, "berth serves at "))
		_, _ = io.Copy(s.log, lines)
		_ = s.cmd.Wait() // how it ended is looked at elsewhere
	}()
	t.Cleanup(func() { s.end(t) })
	select {
	case s.url = <-serving:
	case <-time.After(patience):
	}
	if s.url == "" {
		t.Fatalf("berth serve does not serve:\n%s", s.log)
	}
	return s
}

// end tells it to end, waits, and looks at what it leaves.
func (s *server) end(t testing.TB) {
	if t.Failed() {
		defer func() { t.Logf("berth serve said:\n%s", s.log) }()
	}
	select {
	case <-s.ended:
		return // a test has killed it
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Errorf("berth serve does not end when it is told to")
		s.kill(t)
		return
	}
	if status := s.cmd.ProcessState; !status.Success() {
		t.Errorf("berth serve ended with %v:\n%s", status, s.log)
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil {
		t.Error(err)
	}
	for _, entry := range left {
		t.Errorf("berth serve left %s", entry.Name())
	}
}

// kill ends it at once, and waits until it has.
func (s *server) kill(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-s.ended
}

// call makes a request with the service's token.
func (s *server) call(t testing.TB, method, path string, in any) (status int, body string) {
	t.Helper()
	status, body, err := s.try(context.WithoutCancel(t.Context()), method, path, in)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, body
}

func (s *server) try(ctx context.Context, method, path string, in any) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var send io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, "", err
		}
		send = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, send)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Sandbox-Token", s.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	connections := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := connections.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// want makes a request that is to be answered with a status, and returns the body.
func (s *server) want(t testing.TB, status int, method, path string, in any) string {
	t.Helper()
	got, body := s.call(t, method, path, in)
	if got != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got, body, status)
	}
	return body
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
