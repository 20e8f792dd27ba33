package shellfs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/shellfs"
)

// local runs scripts on this machine.
type local struct {
	shell string
	path  string // of the tools
}

// shells are those of this machine, each with its own tools.
func shells(t *testing.T) map[string]local {
	t.Helper()
	all := map[string]local{"system": {"/bin/sh", "/usr/local/bin:/usr/bin:/bin"}}
	if bash, err := exec.LookPath("bash"); err == nil {
		posix := filepath.Join(t.TempDir(), "sh") // bash is a POSIX shell under this name
		if err := os.Symlink(bash, posix); err != nil {
			t.Fatal(err)
		}
		all["bash"] = local{posix, "/usr/local/bin:/usr/bin:/bin"}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		const absent = "no busybox here (Debian's package busybox-static), which small images have for a shell and tools"
		if os.Getenv("CI") != "" {
			t.Fatal(absent)
		}
		t.Log(absent)
		return all
	}
	tools := t.TempDir()
	if err := os.Chmod(filepath.Dir(tools), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), busybox, "--install", "-s", tools).CombinedOutput(); err != nil {
		t.Fatalf("busybox --install: %v\n%s", err, out)
	}
	all["busybox"] = local{filepath.Join(tools, "sh"), tools}
	return all
}

// script is one that runs.
type script struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr bytes.Buffer
	stop   func() bool
	once   sync.Once
	err    error // of the once
}

func (l local) Run(ctx context.Context, args []string) (shellfs.Process, error) {
	s := &script{cmd: exec.Command(l.shell, append([]string{"-c", shellfs.Script(), "sh"}, args...)...)}
	s.cmd.Env = []string{"PATH=" + l.path, "LANG=C.UTF-8"}
	s.cmd.Stderr = &s.stderr
	var err, errOut error
	s.stdin, err = s.cmd.StdinPipe()
	s.stdout, errOut = s.cmd.StdoutPipe()
	if err := errors.Join(err, errOut); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, s.hangUp)
	return s, nil
}

// hangUp ends the script by its input or its output: one that is killed could not
// clean up.
func (s *script) hangUp() {
	_ = s.stdin.Close()
	_ = s.stdout.Close()
}

func (s *script) Write(p []byte) (int, error) { return s.stdin.Write(p) }
func (s *script) Read(p []byte) (int, error)  { return s.stdout.Read(p) }

func (s *script) Wait() (int, []byte, error) {
	s.once.Do(func() {
		s.err = s.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(s.err, &exit) && exit.Exited() {
			s.err = nil
		}
	})
	return s.cmd.ProcessState.ExitCode(), s.stderr.Bytes(), s.err
}

func (s *script) Close() error {
	s.stop()
	s.hangUp()
	_, _, _ = s.Wait()
	return nil
}
