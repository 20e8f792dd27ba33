package faults_test

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/faults"
)

// shortTemp is a temporary folder, for this process too, that is short enough for
// sockets below it.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "b") //nolint:usetesting // t.TempDir's path is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	t.Setenv("XDG_RUNTIME_DIR", "")
	return dir
}

// socketFolders are those of plugins in a temporary folder.
func socketFolders(t *testing.T, tmp string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(tmp, "berth-run-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hostProcess is a host in a process, and a process group, of its own.
type hostProcess struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	said   bytes.Buffer // on stderr
	pids   []int        // of its plugins
}

// startHost starts one that uses the temporary folder tmp.
func startHost(t *testing.T, tmp, kind string, env ...string) *hostProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &hostProcess{Cmd: exec.Command(self)}
	h.Env = append(os.Environ(), hostEnv+"="+kind, pluginsEnv+"="+pluginsWithSDK(t), "TMPDIR="+tmp, "XDG_RUNTIME_DIR=")
	h.Env = append(h.Env, env...)
	h.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.Stderr = &h.said
	if h.stdin, err = h.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.stdout = bufio.NewReader(stdout)
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Process.Kill()
		_ = h.Wait()
	})
	for range 3 {
		h.pids = append(h.pids, atoi(t, h.line(t)))
	}
	return h
}

// line is the next one that the host writes.
func (h *hostProcess) line(t *testing.T) string {
	t.Helper()
	line, err := h.stdout.ReadString('\n')
	if err != nil {
		_ = h.Wait()
		t.Fatalf("%v; on the host's stderr: %s", err, h.said.String())
	}
	return strings.TrimSpace(line)
}

// pluginsWithSDK is a folder of the faulty plugins and of one that is made with the
// SDK.
func pluginsWithSDK(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, filepath.Base(plugins.Path(withSDK)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{faults.Good, faults.Lifeline} {
		if err := os.Symlink(plugins.Path(name), filepath.Join(dir, filepath.Base(plugins.Path(name)))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// However a host dies, its plugins are gone within two seconds: one that the kernel
// kills with it, one that watches the lifeline alone, and one with the SDK. The next
// host sweeps what it left.
func TestPluginsEndWithTheirHost(t *testing.T) {
	for name, signal := range hostSignals() {
		t.Run(name, func(t *testing.T) {
			tmp := shortTemp(t)
			promptly(t, 2*time.Second, "the end of the plugins", func() time.Duration {
				host := startHost(t, tmp, waits)
				began := time.Now()
				if err := host.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				for _, pid := range host.pids {
					poll(t, "a plugin's end", func() bool { return !alive(pid) })
				}
				took := time.Since(began)
				_ = host.Wait()
				return took
			})
			if len(socketFolders(t, tmp)) == 0 {
				t.Error("the host left no folder: this test shows nothing")
			}
			h := newHost(t, []string{faults.Good})
			open(t, h, faults.Good)
			poll(t, "the next host sweeps", func() bool { return len(socketFolders(t, tmp)) == 1 })
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if left := socketFolders(t, tmp); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// What is written to a host's stdin is the host's, to the last byte.
func TestAPluginTakesNothingOfTheHostsStdin(t *testing.T) {
	host := startHost(t, shortTemp(t), echoes)
	sent := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(sent)
	go func() {
		_, _ = host.stdin.Write(sent)
		_ = host.stdin.Close()
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(host.stdout, got); err != nil {
		t.Fatalf("%v; on the host's stderr: %s", err, host.said.String())
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes")
	}
}

// Ctrl-C in a terminal reaches the host's whole process group, of which its plugins
// are not: the host lets the call end, and ends them after it.
func TestCtrlCDrainsTheHost(t *testing.T) {
	tmp := shortTemp(t)
	host := startHost(t, tmp, drains)
	if got := host.line(t); got != "ready" {
		t.Fatal(got)
	}
	for _, pid := range host.pids {
		if pgid, err := syscall.Getpgid(pid); err != nil || pgid == host.Process.Pid {
			t.Errorf("plugin %d is in group %d, %v", pid, pgid, err)
		}
	}
	if err := syscall.Kill(-host.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := host.line(t); got != callDone {
		t.Errorf("the host says %q", got)
	}
	if err := host.Wait(); err != nil {
		t.Errorf("the host: %v: %s", err, host.said.String())
	}
	for _, pid := range host.pids {
		if alive(pid) {
			t.Errorf("plugin %d is left", pid)
		}
	}
	if left := socketFolders(t, tmp); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
