package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugins/state"
)

// helperVariable has this binary, run by another user, do one thing and end.
const helperVariable = "BERTH_TEST_ADMIN_HELPER"

func TestMain(m *testing.M) {
	if path, ok := strings.CutPrefix(os.Getenv(helperVariable), "ask "); ok {
		os.Exit(helpAsk(path))
	}
	if path, ok := strings.CutPrefix(os.Getenv(helperVariable), "serve "); ok {
		os.Exit(helpServe(path))
	}
	goleak.VerifyTestMain(m)
}

// helpAsk tells what comes of asking the serve at a path.
func helpAsk(path string) int {
	client, err := Connect(context.Background(), Place{Paths: []string{path}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	client.Close()
	fmt.Println("answered")
	return 0
}

// helpServe serves at a path until its stdin ends.
func helpServe(path string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	socket, err := Listen(ctx, Place{Paths: []string{path}, Named: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("serving")
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	if err := NewServer(idleHost{}, About{}, hclog.NewNullLogger()).Serve(ctx, socket); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

const patience = time.Minute

// shortDir is a folder whose paths are short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "admin-") //nolint:usetesting // whose path may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve serves a host at a socket of its own until the test ends, and returns its
// path.
func serve(t *testing.T, h Host) Place {
	t.Helper()
	place := Place{Paths: []string{filepath.Join(shortDir(t), "a", "s")}, Named: true, Config: "/etc/berth.yaml"}
	socket, err := Listen(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- NewServer(h, About{Version: "v9", Config: place.Config, Address: "here"}, hclog.NewNullLogger()).Serve(ctx, socket)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := socket.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return place
}

// realHost has one provider, notes, in this process.
func realHost(t *testing.T) Host {
	return hosttest.New(t, map[string]hosttest.Registrar{"notes": state.Plugin("test")})
}

func connect(t *testing.T, place Place) *Client {
	t.Helper()
	client, err := Connect(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// raw is a client without any manners.
func raw(t *testing.T, place Place) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", place.Paths[0])
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
