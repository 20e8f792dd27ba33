package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/guest"
)

// sharedDir is for what all tests of this package share; TestMain removes it.
func sharedDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("guest-%d", os.Getpid()))
}

// buildGuest builds the binary once, as it is released.
var buildGuest = sync.OnceValues(func() (string, error) {
	if err := os.Mkdir(sharedDir(), 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(sharedDir(), "berth-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=test", "-o", path, "github.com/berth-dev/berth/cmd/berth-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the guest: %w: %s", err, out)
	}
	return path, nil
})

func guestBinary(t testing.TB) string {
	t.Helper()
	path, err := buildGuest()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// machine is a guest that runs on this one, in processes of its own.
type machine struct {
	binary, dir, socket string
	env                 []string
	wrapper             []string // a program that starts the guest, and its arguments
	role                *exec.Cmd
	stderr              *log
	ended               chan error

	mu       sync.Mutex
	connects []*exec.Cmd
}

// startMachine starts a guest in a role, init or serve.
func startMachine(t testing.TB, role string) *machine {
	t.Helper()
	m := newMachine(t)
	m.start(t, role)
	t.Cleanup(func() { m.stop(t) })
	return m
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	base, err := os.MkdirTemp("", "guest") //nolint:usetesting // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if base, err = filepath.EvalSymlinks(base); err != nil {
		t.Fatal(err)
	}
	return &machine{
		binary: guestBinary(t), dir: filepath.Join(base, "work"), socket: filepath.Join(base, "run", "s"),
		env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + base},
	}
}

func (m *machine) start(t testing.TB, role string) {
	t.Helper()
	args := append(slices.Clone(m.wrapper), m.binary, role, "--dir", m.dir, "--socket", m.socket)
	m.role = exec.Command(args[0], args[1:]...)
	m.role.Env = m.env
	m.stderr = &log{}
	m.role.Stderr = m.stderr
	m.role.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := m.role.Start(); err != nil {
		t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan error) { ended <- cmd.Wait() }(m.role, m.ended)
	// A machine that does much else may take longer to start it than connect waits.
	// If it does not come, that is what connect says.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(m.socket); err == nil {
			return
		}
	}
}

// stop ends the guest as Docker would, and wants it to end well.
func (m *machine) stop(t testing.TB) {
	t.Helper()
	if m.ended == nil {
		return
	}
	if err := m.role.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	select {
	case err := <-m.ended:
		if err != nil {
			t.Errorf("the guest ended with %v: %s", err, m.stderr)
		}
	case <-time.After(patience):
		t.Errorf("the guest did not end: %s", m.stderr)
		_ = m.role.Process.Kill()
		<-m.ended
	}
	m.ended = nil
}

// dial starts berth-guest connect, as a provider would by an exec.
func (m *machine) dial(context.Context) (net.Conn, error) {
	cmd := exec.Command(m.binary, "connect", "--socket", m.socket)
	cmd.Env = m.env
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr log
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connects = append(m.connects, cmd)
	return &pipeConn{ReadCloser: stdout, in: stdin, cmd: cmd, stderr: &stderr}, nil
}

func (m *machine) options() guest.Options {
	return guest.Options{Dial: m.dial, Version: "test"}
}

// open connects, and closes at the end of the test.
func (m *machine) open(t testing.TB, options guest.Options) *guest.Workspace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, err := guest.Open(ctx, options)
	if err != nil {
		t.Fatalf("%v; the guest says: %s", err, m.stderr)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return ws
}

// connect makes one connection, which is closed at the end of the test. As a
// [guest.Workspace] does, it makes another one if the first breaks at once: it may have
// waited for a guest that was killed.
func (m *machine) connect(t testing.TB) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for try := 1; ; try++ {
		conn, err := m.dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c, err := guest.Connect(ctx, conn, "test")
		if errors.Is(err, guest.ErrBroken) && try < 3 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatalf("%v; the guest says: %s", err, m.stderr)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// pipeConn is the stream to a process that copies.
type pipeConn struct {
	io.ReadCloser

	in     io.WriteCloser
	cmd    *exec.Cmd
	stderr *log
	once   sync.Once
}

func (c *pipeConn) Write(p []byte) (int, error) { return c.in.Write(p) }

func (c *pipeConn) Close() error {
	c.once.Do(func() {
		_ = c.in.Close()
		_ = c.ReadCloser.Close()
		_ = c.cmd.Wait()
	})
	return nil
}

func (*pipeConn) LocalAddr() net.Addr              { return pipeAddr{} }
func (*pipeConn) RemoteAddr() net.Addr             { return pipeAddr{} }
func (*pipeConn) SetDeadline(time.Time) error      { return nil }
func (*pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (*pipeConn) SetWriteDeadline(time.Time) error { return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "berth-guest connect" }

// log keeps what a process writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(l.buf.String())
}
