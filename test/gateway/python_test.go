//go:build gateway

package gateway_test

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/internal/predecessor"
)

// pythonTimeout is far more than any of the programs takes.
const pythonTimeout = 10 * time.Minute

// installTimeout is for some sixty packages over the network, once.
const installTimeout = 10 * time.Minute

// installed is a Python with the clients, the suite, and schemathesis. Tests that run
// at once wait for one installation.
var installed = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	return predecessor.Install(ctx, "pydantic-ai-slim==2.68.0", "pytest==9.2.0", "schemathesis==4.32.5")
})

// programs are ours that use the clients.
//
//go:embed python
var programs embed.FS

// python returns a Python with the clients, and a folder with programs.
func python(t testing.TB) (interpreter, dir string) {
	t.Helper()
	interpreter, err := installed()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		reason, _, _ := strings.Cut(err.Error(), "\n")
		t.Skipf("python3 with venv (on Debian: apt-get install python3-venv) and PyPI are needed: %s", reason)
	}
	files, err := fs.Sub(programs, "python")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return interpreter, dir
}

// pythonCommand is a Python command for a gateway. Loopback needs no proxy.
func pythonCommand(t testing.TB, s *server, args ...string) *exec.Cmd {
	t.Helper()
	interpreter, dir := python(t)
	ctx, cancel := context.WithTimeout(t.Context(), pythonTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, interpreter, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BERTH_TEST_URL="+s.url, "BERTH_TEST_TOKEN="+s.token, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}
