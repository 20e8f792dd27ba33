package images

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
