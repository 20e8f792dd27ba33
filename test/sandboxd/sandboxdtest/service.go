// Package sandboxdtest starts the real sandboxd service for tests: the package
// pydantic-ai-backend from PyPI, over the container engine and the images of package
// enginetest.
package sandboxdtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/test/docker/enginetest"
	"github.com/berth-dev/berth/test/internal/predecessor"
)

const (
	// installTimeout is for some forty packages over the network, once.
	installTimeout = 10 * time.Minute
	// startTimeout is for Python to import them all, on a loaded machine.
	startTimeout = 2 * time.Minute
	// endTimeout is for the service to stop its containers, before it is killed.
	endTimeout = time.Minute
	// requestTimeout is for a request of a test's own.
	requestTimeout = time.Minute
)

// Settings are arguments of the service's SandboxdConfig that a test wants otherwise.
// A nil value takes one away.
type Settings map[string]any

// Service is one that runs.
type Service struct {
	URL   string
	Token string
	// Root is the folder of its sessions' files.
	Root string

	python   string
	settings []byte
	port     string
	dir      string
	engine   *client.Client
	image    string // the repository of its images' names

	mu  sync.Mutex
	cmd *exec.Cmd
	log *log
}

// log keeps the end of what the service says.
type log struct {
	mu   sync.Mutex
	text []byte
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 64 << 10
	l.text = append(l.text, p...)
	if len(l.text) > most {
		l.text = l.text[len(l.text)-most:]
	}
	return len(p), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Start starts a service with the runtimes debian, which is its default, and busybox,
// and with files that outlive their containers. It ends with the test, with all that it
// made.
func Start(t testing.TB, changed Settings) *Service {
	t.Helper()
	s := &Service{engine: enginetest.Client(t), image: enginetest.Unique(t), Token: rand.Text(), dir: t.TempDir(), log: &log{}}
	runtimes := map[string]string{}
	for _, name := range []string{"debian", "busybox"} {
		// A name of its own, by which its containers are found.
		runtimes[name] = s.image + ":" + name
		if err := s.engine.ImageTag(t.Context(), enginetest.Image(t, name), runtimes[name]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { s.sweep(t) })
	s.Root = filepath.Join(s.dir, "root")
	settings := Settings{
		"token": s.Token, "runtimes": runtimes, "default_runtime": "debian", "workspace_root": s.Root, "prewarm": false,
		"network_mode": "none", "max_sessions": 500, "execute_timeout": 600,
		// The contract's storm of processes has four threads in each.
		"pids_limit": 4096,
	}
	maps.Copy(settings, changed)
	maps.DeleteFunc(settings, func(_ string, value any) bool { return value == nil })
	var err error
	if s.settings, err = json.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	if s.python, err = predecessor.Install(ctx); err != nil {
		t.Fatal(err)
	}
	s.port = freePort(t)
	s.URL = "http://127.0.0.1:" + s.port
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service said:\n%s", s.Log())
		}
	})
	t.Cleanup(func() { s.End(t) })
	s.Restart(t)
	return s
}

// freePort is one that nobody listens on just now.
func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// Log is the end of what the service said.
func (s *Service) Log() string { return s.log.String() }

// Restart starts it where it was, and waits until it answers.
func (s *Service) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		t.Fatal("the service runs already")
	}
	cmd, err := predecessor.Sandboxd(s.python, s.dir, s.port, s.settings)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.health(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the service does not answer: %v\n%s", err, s.Log())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *Service) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := s.http().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// http is a client without connections that outlive the request.
func (s *Service) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// Kill ends it at once. Its containers go on.
func (s *Service) Kill(t testing.TB) { s.signal(t, syscall.SIGKILL) }

// End has it end: it stops its containers.
func (s *Service) End(t testing.TB) { s.signal(t, syscall.SIGTERM) }

func (s *Service) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.cmd.Wait() // how it ended does not matter
	}()
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-done
	}
	s.cmd = nil
}

// Call makes a request of the test's own and returns its status and body.
func (s *Service) Call(t testing.TB, method, path string, in any) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), requestTimeout)
	defer cancel()
	var send io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		send = strings.NewReader(string(text))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, send)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Sandbox-Token", s.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http().Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Sessions are the ids of those that are open.
func (s *Service) Sessions(t testing.TB) []string {
	t.Helper()
	status, body := s.Call(t, http.MethodGet, "/sessions", nil)
	var list struct {
		Sessions []struct {
			SessionID string `json:"session_id"`
		} `json:"sessions"`
	}
	if err := json.Unmarshal([]byte(body), &list); status != http.StatusOK || err != nil {
		t.Fatalf("list of sessions: %d %s", status, body)
	}
	var ids []string
	for _, each := range list.Sessions {
		ids = append(ids, each.SessionID)
	}
	return ids
}

// Containers are those of its sessions.
func (s *Service) Containers(t testing.TB) []string {
	t.Helper()
	ids, err := s.containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (s *Service) containers(ctx context.Context) (ids []string, err error) {
	all, err := s.engine.ContainerList(ctx, container.ListOptions{All: true})
	for _, c := range all {
		if strings.HasPrefix(c.Image, s.image+":") {
			ids = append(ids, c.ID)
		}
	}
	return ids, err
}

// Exec runs a script in each container of a runtime, past the service, and returns what
// they say.
func (s *Service) Exec(t testing.TB, runtime, script string) (said []string) {
	t.Helper()
	all, err := s.engine.ContainerList(t.Context(), container.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Image == s.image+":"+runtime {
			said = append(said, s.exec(t, c.ID, script))
		}
	}
	return said
}

func (s *Service) exec(t testing.TB, id, script string) string {
	t.Helper()
	made, err := s.engine.ContainerExecCreate(t.Context(), id, container.ExecOptions{
		Cmd: []string{"sh", "-c", script}, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	attached, err := s.engine.ContainerExecAttach(t.Context(), made.ID, container.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	var text strings.Builder
	if _, err := stdcopy.StdCopy(&text, &text, attached.Reader); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// RemoveContainers removes them behind the service's back.
func (s *Service) RemoveContainers(t testing.TB) {
	t.Helper()
	for _, id := range s.Containers(t) {
		err := s.engine.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true})
		// One in conflict with a removal that is under way, the service's, is removed by that.
		for errdefs.IsConflict(err) {
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(removalPoll)
			_, err = s.engine.ContainerInspect(t.Context(), id)
			if err == nil {
				err = errdefs.ErrConflict
			}
		}
		if err != nil && !errdefs.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// removalPoll lies between two looks at a container that is being removed.
const removalPoll = 50 * time.Millisecond

// sweep removes what a service that was killed has left.
func (s *Service) sweep(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), endTimeout)
	defer cancel()
	ids, err := s.containers(ctx)
	for _, id := range ids {
		removed := s.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		// One in conflict with a removal that is under way is removed by that.
		if removed != nil && !errdefs.IsNotFound(removed) && !errdefs.IsConflict(removed) {
			err = errors.Join(err, removed)
		}
	}
	if err != nil {
		t.Errorf("remove what the service left: %v", err)
	}
}
