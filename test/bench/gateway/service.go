package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/internal/predecessor"
)

const (
	// startTimeout is for a service to answer, on a loaded machine.
	startTimeout = 2 * time.Minute
	// endTimeout is for a service to end what it has begun, before it is killed.
	endTimeout = time.Minute
	// keepAlive is for how many seconds sandboxd keeps a connection that rests: by
	// itself 5, after which it closes it, perhaps just as the next call comes.
	keepAlive = "3600"
	// pollInterval is between two looks at something that is to happen.
	pollInterval = 50 * time.Millisecond
)

// service is a process that speaks sandboxd's protocol.
type service struct {
	url, token string
	http       *http.Client
	cmd        *exec.Cmd
	ended      chan struct{} // closed when it has
}

// start starts a process and waits until ready tells its address. Its end is the
// caller's, also after an error.
func start(ctx context.Context, cmd *exec.Cmd, token string, ready func(context.Context) (url string, err error)) (*service, error) {
	s := &service{token: token, http: newHTTP(), cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // that it was told to end is no news
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		url, err := ready(ctx)
		if err == nil {
			s.url = url
			return s, nil
		}
		select {
		case <-time.After(pollInterval):
			continue
		case <-s.ended:
			err = errors.New("it has ended")
		case <-ctx.Done():
		}
		return s, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
}

// close has it end. It is nil for one that was never started.
func (s *service) close() {
	if s == nil {
		return
	}
	s.http.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// alias is the runtime that both services have.
const alias = "bench"

// startGateway starts `berth serve` with one docker provider.
func startGateway(ctx context.Context, bin, dir, provider string, config map[string]any) (*service, error) {
	token := rand.Text()
	text, err := json.MarshalIndent(map[string]any{ // which is YAML too
		"plugin_dirs": []string{bin},
		"data_dir":    filepath.Join(dir, "data"),
		"providers":   map[string]any{provider: map[string]any{"plugin": plugin, "config": config}},
		"gateway": map[string]any{
			"listen": "127.0.0.1:0", "token": "${BERTH_BENCH_TOKEN}", "runtimes": map[string]any{alias: map[string]any{"provider": provider}},
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "berth.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd := exec.Command(filepath.Join(bin, "berth"), "-c", file, "serve")
	cmd.Env = append(os.Environ(), "BERTH_BENCH_TOKEN="+token)
	cmd.Stdout = said
	return start(ctx, cmd, token, func(context.Context) (string, error) {
		data, err := os.ReadFile(said.Name())
		if err != nil {
			return "", err
		}
		line, _, whole := strings.Cut(string(data), "\n")
		_, url, found := strings.Cut(line, "berth serves at ")
		if !whole || !found {
			return "", errors.New("no address")
		}
		return url, nil
	})
}

// startSandboxd starts the predecessor's service, its sessions' files on this machine,
// which is how it is fastest.
func startSandboxd(ctx context.Context, python, dir, image string) (*service, error) {
	token := rand.Text()
	settings, err := json.Marshal(map[string]any{
		"token": token, "runtimes": map[string]string{alias: image}, "default_runtime": alias,
		"workspace_root": filepath.Join(dir, "root"), "prewarm": false, "network_mode": "none",
	})
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd, err := predecessor.Sandboxd(python, dir, port, settings)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--timeout-keep-alive", keepAlive)
	url := "http://127.0.0.1:" + port
	return start(ctx, cmd, token, func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return url, resp.Body.Close()
	})
}

// freePort is one that nobody listens on just now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// plugin is the gateway's provider.
const plugin = "docker"

// pluginPID is the plugin's process of a gateway, zero while there is none.
func (s *service) pluginPID() int { return proc.Child(s.cmd.Process.Pid, "berth-provider-"+plugin) }
