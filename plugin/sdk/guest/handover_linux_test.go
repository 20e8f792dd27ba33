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
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/plugin/sdk/guest/serve"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// upload writes a file of so many bytes.
func upload(t *testing.T, c *guest.Client, size int) {
	t.Helper()
	stream, err := c.Provider().WriteFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	messages := []*berthv1.WriteFileRequest{{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: c.Key(), Path: []byte("file")}}}}
	chunk := bytes.Repeat([]byte{7}, 64<<10)
	for sent := 0; sent < size; sent += len(chunk) {
		messages = append(messages, &berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: chunk}})
	}
	messages = append(messages, &berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: int64(size)}})
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			break // the answer tells why
		}
	}
	if answer, err := stream.CloseAndRecv(); err != nil || answer.GetWritten() != int64(size) {
		t.Fatalf("writing %d bytes: %v, %v", size, answer, err)
	}
}

// figure is a number that the kernel tells of a process.
func figure(t *testing.T, pid int, file, name string) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(content), name+":")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUploadsPassTheGuestAlone: connect has handed its input over.
func TestUploadsPassTheGuestAlone(t *testing.T) {
	m := startMachine(t, "serve")
	c := m.connect(t)
	connect, size := m.connects[0].Process.Pid, 4<<20
	before := figure(t, connect, "io", "rchar")
	upload(t, c, size)
	if read := figure(t, connect, "io", "rchar") - before; read > size/4 {
		t.Errorf("connect read %d bytes of an upload of %d", read, size)
	}
	if n := figure(t, connect, "status", "Threads"); n > 8 {
		t.Errorf("connect has %d threads", n)
	}
	r := shell(t.Context(), c, "cd /proc/self/fd && for fd in *; do [ $fd -gt 2 ] && readlink $fd; done; true")
	if strings.Contains(r.stdout, "pipe:") || strings.Contains(r.stdout, "socket:") || r.err != nil {
		t.Errorf("a command has %+v", r)
	}
}

// have reports whether a process has that file.
func have(t *testing.T, pid int, of *os.File) bool {
	t.Helper()
	want, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", of.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if to, _ := os.Readlink(filepath.Join(dir, entry.Name())); to == want {
			return true
		}
	}
	return false
}

// TestWhatIsNoInputIsRefused, leaves nothing open, and keeps nobody else from being
// served.
func TestWhatIsNoInputIsRefused(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	c := m.connect(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(pipe[0]), "in"), os.NewFile(uintptr(pipe[1]), "out")
	defer out.Close()
	defer in.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if serve.CanHandOver(file) || !serve.CanHandOver(in) {
		t.Error("a file can be handed over, or a pipe cannot")
	}
	var open []net.Conn
	for name, begin := range map[string]func(*net.UnixConn) error{
		"none": func(conn *net.UnixConn) error { _, err := conn.Write([]byte{0}); return err },
		"two": func(conn *net.UnixConn) error {
			_, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(pipe[0], pipe[0]), nil)
			return err
		},
		"many": func(conn *net.UnixConn) error {
			_, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(pipe[0], pipe[0], pipe[0], pipe[0], pipe[0]), nil)
			return err
		},
		"a file":        func(conn *net.UnixConn) error { return serve.HandOver(conn, file) },
		"no input":      func(*net.UnixConn) error { return nil },
		"its end":       func(conn *net.UnixConn) error { return conn.CloseWrite() },
		"silence":       func(conn *net.UnixConn) error { return serve.HandOver(conn, in) },
		"input and end": func(conn *net.UnixConn) error { return errors.Join(serve.HandOver(conn, in), conn.Close()) },
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", m.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
		if err := begin(conn.(*net.UnixConn)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := shell(t.Context(), c, "echo on"); r.stdout != "on\n" {
			t.Errorf("another client beside %s: %+v", name, r)
		}
	}
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the guest leaves a connection open: %v", err)
		}
	}
	for _, f := range []*os.File{in, file} {
		eventually(t, "the guest has closed what it got", func() bool { return !have(t, m.role.Process.Pid, f) })
	}
}

// TestConnectLeavesAStoppedGuest: what its client has left must not stay.
func TestConnectLeavesAStoppedGuest(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	conn, err := m.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 9)); err != nil { // the server's first words
		t.Fatal(err)
	}
	if err := m.role.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- conn.Close() }() // waits for the process
	select {
	case <-ended:
	case <-time.After(patience):
		_ = m.connects[0].Process.Kill()
		<-ended
		t.Error("connect goes on")
	}
	if err := m.role.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// terminal is a new one that changes nothing of what passes it, and its other end.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	var number int
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ioctlErr error
	err = raw.Control(func(fd uintptr) {
		if ioctlErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); ioctlErr == nil {
			number, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err := errors.Join(err, ioctlErr); err != nil {
		t.Fatal(err)
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			_ = theirs.Close()
		}
	}()
	mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(theirs.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// TestConnectCopiesWhatItKeeps: a terminal is not handed over.
func TestConnectCopiesWhatItKeeps(t *testing.T) {
	m := startMachine(t, "serve")
	ours, theirs := terminal(t)
	cmd := exec.Command(m.binary, "connect", "--socket", m.socket)
	cmd.Stdin = theirs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	var stderr log
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := guest.Connect(ctx, &pipeConn{ReadCloser: stdout, in: ours, cmd: cmd, stderr: &stderr}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, size := figure(t, cmd.Process.Pid, "io", "rchar"), 1<<20
	upload(t, c, size)
	if read := figure(t, cmd.Process.Pid, "io", "rchar") - before; read < size {
		t.Errorf("connect read %d bytes of an upload of %d: this tests nothing", read, size)
	}
	if r := shell(t.Context(), c, "cat file"); r.err != nil || r.stdout != strings.Repeat("\a", size) {
		t.Errorf("the file has %d bytes, or others: %v", len(r.stdout), r.err)
	}
}
