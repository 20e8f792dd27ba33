//go:build docker

package operating_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
)

const (
	// patience bounds what takes a second or two on an idle machine.
	patience = 2 * time.Minute
	poll     = 50 * time.Millisecond
	token    = "token-of-a-test"
)

// until polls for something.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// buildImage builds the image of the recipe, from a context as the docs have it made.
func buildImage(t *testing.T, engine *client.Client, tag string) {
	t.Helper()
	var contents bytes.Buffer
	w := tar.NewWriter(&contents)
	add := func(name string, mode int64, data []byte) {
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Now()}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	binaries, err := filepath.Glob(filepath.Join(bin, "berth*"))
	if err != nil || len(binaries) < 5 {
		t.Fatalf("binaries: %v, %v", binaries, err)
	}
	for _, file := range binaries {
		add(filepath.Base(file), 0o755, []byte(read(t, file)))
	}
	add("berth.yaml", 0o644, []byte(read(t, docs+"berth.yaml")))
	add("state/", 0o755, nil)
	add("Containerfile", 0o644, []byte(read(t, docs+"Containerfile")))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	answer, err := engine.ImageBuild(t.Context(), &contents, build.ImageBuildOptions{Tags: []string{tag}, Dockerfile: "Containerfile", Remove: true, ForceRemove: true})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := json.NewDecoder(answer.Body); ; {
		var line struct{ Stream, Error string }
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if line.Error != "" {
			t.Fatalf("build: %s", line.Error)
		}
		if step := strings.TrimSpace(line.Stream); step != "" {
			t.Log(step)
		}
	}
}

// box is a container of that image.
type box struct {
	t      *testing.T
	engine *client.Client
	id     string
}

// start runs a container. What it has written is told if the test fails.
func start(t *testing.T, engine *client.Client, name string, config *container.Config, host *container.HostConfig) *box {
	t.Helper()
	made, err := engine.ContainerCreate(t.Context(), config, host, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t, engine, made.ID}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the container wrote:\n%s", b.logs())
		}
	})
	b.start()
	return b
}

func (b *box) start() {
	b.t.Helper()
	if err := b.engine.ContainerStart(b.t.Context(), b.id, container.StartOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) inspect() container.InspectResponse {
	b.t.Helper()
	info, err := b.engine.ContainerInspect(context.WithoutCancel(b.t.Context()), b.id)
	if err != nil {
		b.t.Fatal(err)
	}
	return info
}

// logs are of its whole life.
func (b *box) logs() string {
	stream, err := b.engine.ContainerLogs(context.WithoutCancel(b.t.Context()), b.id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return err.Error()
	}
	defer stream.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, stream); err != nil {
		return err.Error()
	}
	return text.String()
}

// exec runs a command beside what runs there, and returns its output and exit code.
func (b *box) exec(command ...string) (output string, code int) {
	b.t.Helper()
	made, err := b.engine.ContainerExecCreate(b.t.Context(), b.id, container.ExecOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		b.t.Fatal(err)
	}
	stream, err := b.engine.ContainerExecAttach(b.t.Context(), made.ID, container.ExecAttachOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer stream.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, stream.Reader); err != nil {
		b.t.Fatal(err)
	}
	done, err := b.engine.ContainerExecInspect(b.t.Context(), made.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return text.String(), done.ExitCode
}

// stop has it end as an engine or a service manager does, and returns its exit code
// and how long that took. Longer than grace is an error.
func (b *box) stop(grace time.Duration) (code int) {
	b.t.Helper()
	began, seconds := time.Now(), int(grace.Seconds())
	if err := b.engine.ContainerStop(b.t.Context(), b.id, container.StopOptions{Timeout: &seconds}); err != nil {
		b.t.Fatal(err)
	}
	if took := time.Since(began); took >= grace {
		b.t.Errorf("it did not end within %v of SIGTERM", grace)
	}
	return b.inspect().State.ExitCode
}

// address is where the port of the gateway is published.
func (b *box) address() string {
	b.t.Helper()
	for _, binding := range b.inspect().NetworkSettings.Ports["8787/tcp"] {
		return "http://" + net.JoinHostPort(binding.HostIP, binding.HostPort)
	}
	b.t.Fatal("port 8787 is not published")
	return ""
}

// ask makes a request of the gateway, and returns its answer.
func ask(t *testing.T, method, url, body string) (status int, answer string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Sandbox-Token", token)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // an idle connection would be a leak
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}
