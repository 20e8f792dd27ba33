package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// testEnv is a plugin's whole environment in these tests.
func testEnv(t testing.TB) []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()}
}

func testConfig(t testing.TB, name string) Config {
	return Config{Provider: "test", Path: plugins.Path(name), Dir: t.TempDir(), Env: testEnv(t), StartTimeout: time.Minute}
}

// start starts a plugin that the test's end closes.
func start(t testing.TB, cfg Config) *Process {
	t.Helper()
	p, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// do makes the plugin do something.
func do(ctx context.Context, p *Process, what string) (string, error) {
	resp, err := berthv1.NewProviderClient(p.Conn()).Stat(ctx, &berthv1.StatRequest{Path: []byte("/" + what)})
	return string(resp.GetInfo().GetTarget()), err
}

func mustDo(t testing.TB, p *Process, what string) string {
	t.Helper()
	answer, err := do(t.Context(), p, what)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return answer
}

func TestStartAnswersAndStops(t *testing.T) {
	p := start(t, testConfig(t, "good"))
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
	began := time.Now()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := p.ExitStatus(); status != "exit status 0" {
		t.Errorf("a plugin that was asked to end: %s (after %v)", status, time.Since(began))
	}
	if reason := p.Reason(); reason != "" {
		t.Errorf("it was killed: %s", reason)
	}
}

func TestEnvironmentIsTheGivenOneAlone(t *testing.T) {
	t.Setenv("SECRET_OF_THE_HOST", "hunter2")
	cfg := testConfig(t, "good")
	cfg.Env = append(cfg.Env, "ALLOWED=yes", "PLUGIN_CLIENT_CERT=stray", "BERTH_PLUGIN=stray")
	p := start(t, cfg)
	env := strings.Split(mustDo(t, p, "env"), "\x00")
	if !slices.Contains(env, "ALLOWED=yes") {
		t.Errorf("an allowed variable is missing in %q", env)
	}
	for _, kv := range env {
		if strings.Contains(kv, "hunter2") || strings.Contains(kv, "stray") {
			t.Errorf("%s reached the plugin", kv)
		}
	}
	if got := mustDo(t, p, "dir"); got != cfg.Dir {
		t.Errorf("working directory %s, want %s", got, cfg.Dir)
	}
}

// poll waits for something to become true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// file makes a file that is no good plugin.
func file(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth-provider-bad")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
