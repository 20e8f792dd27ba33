package posix_test

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

func TestMain(m *testing.M) {
	playRole() // calls posix.Main
	goleak.VerifyTestMain(m)
}

// soon is for what takes milliseconds, on a machine with no time to spare.
const soon = 20 * time.Second

// testEnv is a workspace's environment.
var testEnv = map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}

func openWorkspace(t testing.TB) *posix.Workspace {
	t.Helper()
	return openDir(t, t.TempDir())
}

func openDir(t testing.TB, dir string) *posix.Workspace {
	t.Helper()
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "test", Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Errorf("closing the workspace: %v", err)
		}
	})
	return ws
}

func start(t testing.TB, ws *posix.Workspace, cmd sdk.Command) sdk.Process {
	t.Helper()
	p, err := ws.Start(t.Context(), cmd)
	if err != nil {
		t.Fatalf("Start(%.100q): %v", cmd.Args, err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func script(text string, args ...string) sdk.Command {
	return sdk.Command{Args: append([]string{"/bin/sh", "-c", text, "sh"}, args...)}
}

type result struct {
	code           int
	stdout, stderr string
}

// run starts a command and takes all of it.
func run(t testing.TB, ws *posix.Workspace, cmd sdk.Command) result {
	t.Helper()
	p := start(t, ws, cmd)
	defer p.Close()
	return wait(t, p)
}

func wait(t testing.TB, p sdk.Process) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	errs := make(chan error, 2)
	go func() { _, err := io.Copy(&stdout, p.Stdout()); errs <- err }()
	go func() { _, err := io.Copy(&stderr, p.Stderr()); errs <- err }()
	for range 2 {
		if err := <-errs; err != nil {
			t.Errorf("reading output: %v", err)
		}
	}
	code, err := p.Wait()
	if err != nil {
		t.Errorf("Wait: %v", err)
	}
	return result{code, stdout.String(), stderr.String()}
}

// eventually polls until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// readPID waits for a pid in a file.
func readPID(t testing.TB, file string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+file, func() bool {
		data, _ := os.ReadFile(file)
		if !bytes.HasSuffix(data, []byte("\n")) {
			return false
		}
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	return pid
}
