package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/faults"
)

// startHost starts a host of its own whose temporary folder is tmp. It returns
// its plugins' pids.
func startHost(t *testing.T, tmp, stdin string) (cmd *exec.Cmd, out *bufio.Reader, pids []int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+plugins.Dir, "TMPDIR="+tmp, "XDG_RUNTIME_DIR=")
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	out = bufio.NewReader(pipe)
	for range 2 {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, read, _ := strings.Cut(strings.TrimSpace(line), " ")
		if read != `""` {
			t.Errorf("the plugin read %s of the host's stdin", read)
		}
		pids = append(pids, atoi(t, pid))
	}
	return cmd, out, pids
}

// A host that is killed takes its plugins along: those with a parent death
// signal, and those that watch the lifeline. What it left is swept.
func TestHostDeath(t *testing.T) {
	tmp := shortTemp(t)
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	cmd, out, pids := startHost(t, tmp, "every byte\n")
	if line, err := out.ReadString('\n'); err != nil || line != "every byte\n" {
		t.Errorf("the host read %q of its stdin, %v", line, err)
	}
	for _, pid := range pids {
		if gone(pid) {
			t.Fatalf("plugin %d is gone before its host", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "the end of the plugins", func() { // 2 s
		for _, pid := range pids {
			poll(t, "a plugin's end", func() bool { return gone(pid) })
		}
	})
	if len(socketFolders(t, tmp)) == 0 {
		t.Error("the killed host left no folder: this test shows nothing")
	}
	p := start(t, testConfig(t, faults.Good))
	poll(t, "a later start sweeps", func() bool { return len(socketFolders(t, tmp)) == 1 })
	p.Close()
	if left := socketFolders(t, tmp); len(left) != 0 {
		t.Errorf("folders in the end: %q", left)
	}
}

// The folder of a host that lives is left alone.
func TestLivingHostIsNotSwept(t *testing.T) {
	tmp := shortTemp(t)
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	startHost(t, tmp, "")
	before := socketFolders(t, tmp)
	start(t, testConfig(t, faults.Good)).Close()
	if after := socketFolders(t, tmp); len(before) != 2 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("before %q, after %q", before, after)
	}
}

func TestLongTempDir(t *testing.T) {
	long := filepath.Join(shortTemp(t), strings.Repeat("d", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	t.Setenv("XDG_RUNTIME_DIR", "")
	p := start(t, testConfig(t, faults.Good))
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
}

// shortTemp is a folder that is short enough for sockets below it.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "b") //nolint:usetesting // t.TempDir's path is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// socketFolders are what is in base but for the folders of tests.
func socketFolders(t *testing.T, base string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(path string) bool { // those of t.TempDir
		return strings.HasPrefix(filepath.Base(path), "Test")
	})
}
