package enginetest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

// ownTimeout is how long an engine of a test's own may take to start, with its
// containerd, on a loaded machine.
const ownTimeout = 2 * time.Minute

// OwnEngine is an engine that a test may kill. It has images, containers and a
// network of its own: no container of it has a network, and none reaches the
// shared engine.
type OwnEngine struct {
	t      testing.TB
	dir    string
	binary string
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
}

// Own starts an engine beside the one that all tests share. It takes dockerd and
// root. At the end of the test nothing is left of it.
func Own(t testing.TB) *OwnEngine {
	t.Helper()
	binary, err := exec.LookPath("dockerd")
	if err != nil || os.Getuid() != 0 {
		absent(t, "an engine of the test's own takes dockerd and root")
	}
	dir, err := os.MkdirTemp("", "berth") //nolint:usetesting // short: it is for sockets
	if err != nil {
		t.Fatal(err)
	}
	own := &OwnEngine{t: t, dir: dir, binary: binary}
	t.Cleanup(own.remove)
	own.Start()
	return own
}

// Host is its address, as DOCKER_HOST takes it.
func (own *OwnEngine) Host() string { return "unix://" + filepath.Join(own.dir, "s") }

// Start starts it again, and waits until it answers.
func (own *OwnEngine) Start() {
	own.t.Helper()
	// A containerd that was killed with the engine may be a zombie still, which the
	// next engine would take for one that runs.
	_ = os.Remove(filepath.Join(own.dir, "exec", "containerd", "containerd.pid"))
	output, err := os.OpenFile(filepath.Join(own.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		own.t.Fatal(err)
	}
	defer output.Close()
	name := filepath.Base(own.dir)
	cmd := exec.Command(own.binary, "-H", own.Host(), "--data-root", filepath.Join(own.dir, "data"), "--exec-root", filepath.Join(own.dir, "exec"), //nolint:gosec // the engine's own program
		"--pidfile", filepath.Join(own.dir, "pid"), "--bridge", "none", "--iptables=false", "--ip-forward=false", "--storage-driver", "vfs",
		"--containerd-namespace", name, "--containerd-plugins-namespace", name+"-plugins")
	cmd.Stdout, cmd.Stderr = output, output
	// Without a bridge an engine removes docker0 where it finds it: that of the
	// shared engine, were it not in a network of its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		own.t.Fatal(err)
	}
	done := make(chan struct{})
	own.cmd, own.done = cmd, done
	go func() {
		_ = cmd.Wait() // that it was killed is no news
		close(done)
	}()
	if err := own.wait(); err != nil {
		own.Kill()
		content, _ := os.ReadFile(output.Name())
		own.t.Fatalf("the engine does not start: %v\n%s", err, content)
	}
}

// wait waits until it answers.
func (own *OwnEngine) wait() error {
	engine, err := client.NewClientWithOpts(client.WithHost(own.Host()), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(own.t.Context(), ownTimeout)
	defer cancel()
	for {
		if _, err = engine.Ping(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Kill ends it at once, as a crash does. Its containers' processes go on until
// the next start.
func (own *OwnEngine) Kill() { own.signal(syscall.SIGKILL) }

func (own *OwnEngine) signal(sig syscall.Signal) {
	if own.cmd == nil {
		return
	}
	_ = own.cmd.Process.Signal(sig)
	<-own.done
	own.cmd = nil
}

// remove leaves nothing of it, whatever state it is in.
func (own *OwnEngine) remove() {
	own.signal(syscall.SIGTERM)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		command, err := os.ReadFile(filepath.Join(process, "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(process))
		if err == nil && pid > 0 && bytes.Contains(command, []byte(own.dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		own.t.Error(err)
	}
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], own.dir+"/") {
			if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil {
				own.t.Errorf("unmount %s: %v", fields[1], err)
			}
		}
	}
	if err := os.RemoveAll(own.dir); err != nil {
		own.t.Error(err)
	}
}
