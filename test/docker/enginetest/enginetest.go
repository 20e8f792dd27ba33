// Package enginetest gives tests a container engine, the project's own test
// images, and names of their own whose things are removed after them. It is for
// tests with the build tag `docker`, which `make test-docker` runs.
//
// Where no engine answers, a test is skipped, except in CI (the variable CI is
// set), where it fails.
package enginetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/test/docker/internal/testimages"
)

const (
	// pingTimeout is how long an engine may take to say that it is there: on a
	// loaded machine it has many containers to start meanwhile.
	pingTimeout = 30 * time.Second
	// imageTimeout bounds the making of an image: Debian's takes half a minute on
	// an idle machine.
	imageTimeout = 10 * time.Minute
	// sweepTimeout bounds the removal of what a test made: a container is killed
	// and removed in a fraction of a second, and a test may have made many.
	sweepTimeout = 3 * time.Minute
)

// podmanSocket is where test/docker/podman-up has Podman answer.
const podmanSocket = "/run/berth-test-podman/podman.sock"

// Podman returns the address, as DOCKER_HOST takes it, of the Podman that
// test/docker/podman-up starts.
func Podman(t testing.TB) (host string) {
	t.Helper()
	host = "unix://" + podmanSocket
	podman, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatalf("find Podman: %v", err)
	}
	defer podman.Close()
	ctx, cancel := context.WithTimeout(t.Context(), pingTimeout)
	defer cancel()
	if _, err := podman.Ping(ctx); err != nil {
		absent(t, "no Podman answers at %s (test/docker/podman-up starts one): %v", host, err)
	}
	return host
}

// Client returns a client of the engine that DOCKER_HOST, or the default
// address, leads to. It is closed at the end of the test.
func Client(t testing.TB) *client.Client {
	t.Helper()
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatalf("find the container engine: %v", err)
	}
	t.Cleanup(func() { engine.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), pingTimeout)
	defer cancel()
	if _, err := engine.Ping(ctx); err != nil {
		absent(t, "no container engine answers at %s (test/docker/up starts one): %v", engine.DaemonHost(), err)
	}
	return engine
}

// absent ends the test: an engine is there in CI, and may not be elsewhere.
func absent(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Image returns the reference of a test image, `busybox`, `debian` or `scratch`,
// and makes it if need be. What each holds is said in package testimages.
func Image(t testing.TB, name string) string {
	t.Helper()
	engine := Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), imageTimeout)
	defer cancel()
	ref, err := testimages.Ensure(ctx, engine, name, func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// Unique returns a name that nothing on the engine has, of the syntax that
// providers, containers, volumes and repositories of images all take. At the end
// of the test every container, volume, network and image is removed whose name
// holds it, or one of whose labels does: a provider of that name, say, with all
// its workspaces.
//
// Clean-ups run last in, first out: call it before what makes things.
func Unique(t testing.TB) string {
	t.Helper()
	engine := Client(t)
	var random [5]byte
	_, _ = rand.Read(random[:]) // never fails
	name := "test-" + hex.EncodeToString(random[:])
	// Registered after Client's, so it runs while the client is open.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), sweepTimeout)
		defer cancel()
		if err := sweep(ctx, engine, name); err != nil {
			t.Errorf("remove what the test made: %v", err)
		}
	})
	return name
}

// carries says whether a thing of these names and labels belongs to a unique name.
func carries(unique string, labels map[string]string, names ...string) bool {
	for _, name := range names {
		if strings.Contains(name, unique) {
			return true
		}
	}
	for key, value := range labels {
		if strings.Contains(key, unique) || strings.Contains(value, unique) {
			return true
		}
	}
	return false
}
