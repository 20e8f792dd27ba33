package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/host/gateway"
	"github.com/berth-dev/berth/host/hosttest"
)

// A host's workspaces over HTTP, here those of a fake.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var h hosttest.Fake
	h.On(hosttest.Reply{Stdout: "Linux\n"}, "uname")
	g, err := gateway.New(ctx, gateway.Config{
		Host: &h, Token: "token", Store: "sqlite:" + filepath.Join(dir, "sessions.db"),
		Runtimes: map[string]gateway.Runtime{"python": {Provider: "docker", Config: map[string]any{"image": "python:3.12-slim"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Or l, err := g.Listen(ctx), and g.Serve(ctx, l).
	server := httptest.NewServer(g.Handler())
	post := func(path, body string) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		req.Header.Set("X-Sandbox-Token", "token")
		resp, err := server.Client().Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %.45s", resp.StatusCode, strings.TrimSpace(string(answer)))
	}
	fmt.Println(post("/sessions", `{"session_id": "demo"}`))
	fmt.Println(post("/sessions/demo/run", `{"argv": ["uname"], "run_id": "0123456789abcdef0123456789abcdef"}`))
	server.Close()
	fmt.Println(g.Shutdown(ctx))
	// Output:
	// 200 {"session":{"session_id":"demo","runtime":"py
	// 200 {"stdout":"Linux\n","stderr":"","exit_code":0
	// <nil>
}
