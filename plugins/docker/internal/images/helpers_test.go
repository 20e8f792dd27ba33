package images

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user     = "ishmael"
	password = "call-me-s3cret"
)

// answering puts a credential helper of the name berthtest into PATH, which answers
// as told.
func answering(t *testing.T, answer string, status int) {
	t.Helper()
	script(t, fmt.Sprintf("cat >/dev/null\ncat <<'END'\n%s\nEND\nexit %d\n", answer, status))
}

// script puts a credential helper of the name berthtest into PATH.
func script(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-berthtest"), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// configure writes a configuration of Docker's own client.
func configure(t *testing.T, config map[string]any) {
	t.Helper()
	dir := t.TempDir()
	content, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
}

func basic(user, password string) map[string]any {
	return map[string]any{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
}
