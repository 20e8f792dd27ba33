//go:build unix

package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/registry"

	"github.com/berth-dev/berth/shared/workspace"
)

// sent is what the engine gets.
func sent(t *testing.T, f found) registry.AuthConfig {
	t.Helper()
	if f.header == "" {
		return registry.AuthConfig{}
	}
	auth, err := registry.DecodeAuthConfig(f.header)
	if err != nil {
		t.Fatal(err)
	}
	return *auth
}

func TestCredentialsAreThoseOfDockersOwnClient(t *testing.T) {
	const host = "registry.example.com"
	mine := map[string]any{"auths": map[string]any{host: basic(user, password)}}
	for _, test := range []struct {
		name   string
		config map[string]any
		env    string // DOCKER_AUTH_CONFIG
		helper string
		status int
		domain string
		user   string
		token  string
		failed string
	}{
		{name: "none", config: map[string]any{}, domain: host},
		{name: "of the file", config: mine, domain: host, user: user},
		{name: "of another registry", config: mine, domain: "other.example.com"},
		{name: "of Docker Hub", config: map[string]any{"auths": map[string]any{hubKey: basic(user, password)}}, domain: dockerHub, user: user},
		{name: "of a token", config: map[string]any{"auths": map[string]any{host: map[string]any{"identitytoken": "t0ken"}}}, domain: host, token: "t0ken"},
		{name: "of a helper", config: map[string]any{"credHelpers": map[string]any{host: "berthtest"}}, helper: `{"Username":"ahab","Secret":"x"}`, domain: host, user: "ahab"},
		{name: "of a helper for another registry", config: map[string]any{"credHelpers": map[string]any{host: "berthtest"}, "auths": map[string]any{"other.example.com": basic(user, password)}}, helper: `{"Username":"ahab","Secret":"x"}`, domain: "other.example.com", user: user},
		{name: "of a helper before the store", config: map[string]any{"credsStore": "missing", "credHelpers": map[string]any{host: "berthtest"}}, helper: `{"Username":"ahab","Secret":"x"}`, domain: host, user: "ahab"},
		{name: "of the store before the file", config: map[string]any{"credsStore": "berthtest", "auths": map[string]any{host: basic(user, password)}}, helper: `{"Username":"ahab","Secret":"x"}`, domain: host, user: "ahab"},
		{name: "of a helper with a token", config: map[string]any{"credsStore": "berthtest"}, helper: `{"Username":"<token>","Secret":"t0ken"}`, domain: host, token: "t0ken"},
		{name: "a helper that has none", config: map[string]any{"credsStore": "berthtest"}, helper: "credentials not found in native keychain", status: 1, domain: host},
		{name: "a helper that has empty ones", config: map[string]any{"credsStore": "berthtest"}, helper: `{"Username":"","Secret":""}`, domain: host},
		{name: "a helper that fails", config: map[string]any{"credsStore": "berthtest"}, helper: "pass is locked", status: 1, domain: host, failed: "pass is locked"},
		{name: "a helper that fails and tells", config: map[string]any{"credsStore": "berthtest"}, helper: `{"Secret":"` + password + `"}`, status: 1, domain: host, failed: "exit status 1"},
		{name: "a helper that talks nonsense", config: map[string]any{"credsStore": "berthtest"}, helper: "hello", domain: host, failed: "invalid character"},
		{name: "a helper that is missing", config: map[string]any{"credsStore": "missing"}, domain: host, failed: "no such program in PATH"},
		{name: "of the environment", config: map[string]any{"credsStore": "missing"}, env: `{"auths":{"registry.example.com":{"auth":"YWhhYjp4"}}}`, domain: host, user: "ahab"},
		{name: "of the environment for another registry", config: mine, env: `{"auths":{"other.example.com":{"auth":"YWhhYjp4"}}}`, domain: host, user: user},
	} {
		t.Run(test.name, func(t *testing.T) {
			configure(t, test.config)
			t.Setenv("DOCKER_AUTH_CONFIG", test.env)
			if test.helper != "" {
				answering(t, test.helper, test.status)
			}
			f, err := credentialsFor(t.Context(), test.domain)
			if err != nil {
				t.Fatal(err)
			}
			if auth := sent(t, f); auth.Username != test.user || auth.IdentityToken != test.token {
				t.Errorf("they are of %q, token %q", auth.Username, auth.IdentityToken)
			}
			if (f.failed != nil) != (test.failed != "") {
				t.Fatalf("it failed with %v", f.failed)
			}
			if f.failed != nil && (!strings.Contains(f.failed.Error(), test.failed) || strings.Contains(f.failed.Error(), password)) {
				t.Errorf("it failed with %v; want %q", f.failed, test.failed)
			}
		})
	}
}

func TestAHelperIsAskedAsDockersOwnClientAsksIt(t *testing.T) {
	configure(t, map[string]any{"credsStore": "berthtest"})
	script(t, `[ "$1" = get ] || exit 1
read -r key
printf '{"Username":"%s","Secret":"x"}' "$key"`)
	f, err := credentialsFor(t.Context(), dockerHub)
	if err != nil || f.failed != nil {
		t.Fatal(err, f.failed)
	}
	if got := sent(t, f).Username; got != hubKey {
		t.Errorf("it is asked for %q", got)
	}
}

func TestAHelperThatDoesNotEndIsEnded(t *testing.T) {
	configure(t, map[string]any{"credsStore": "berthtest"})
	// The child holds the output open when the helper is gone.
	children := filepath.Join(t.TempDir(), "pids")
	script(t, "sleep 600 & echo $! >>"+children+"; exec sleep 600\n")
	t.Cleanup(func() { kill(t, children) })
	started := time.Now()
	_, err := askHelper(t.Context(), 100*time.Millisecond, helperPrefix+"berthtest", "x")
	if err == nil || !strings.Contains(err.Error(), "not answered within 100ms") {
		t.Errorf("it is %v", err)
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("it took %v", took)
	}

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := credentialsFor(ctx, "registry.example.com"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// kill ends the processes that a file lists.
func kill(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for _, field := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
}

func TestAHelperThatFloodsIsEnded(t *testing.T) {
	script(t, "exec yes\n")
	if _, err := askHelper(t.Context(), time.Minute, helperPrefix+"berthtest", "x"); err == nil {
		t.Error("it has no error")
	}
}

func TestCredentialsThatCannotBeRead(t *testing.T) {
	configure(t, map[string]any{"auths": map[string]any{"x": map[string]any{"auth": "%%%"}}})
	_, err := credentialsFor(t.Context(), "registry.example.com")
	if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("it is %v", err)
	}
}
