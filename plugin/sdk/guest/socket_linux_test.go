package guest_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleResult is what a process of the guest's binary ended with.
type roleResult struct {
	status int
	stderr string
}

func runRole(t testing.TB, cmd *exec.Cmd) roleResult {
	t.Helper()
	var stderr log
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return roleResult{cmd.ProcessState.ExitCode(), stderr.String()}
}

func TestOnlyOneServesASocket(t *testing.T) {
	m := startMachine(t, "serve")
	c := m.connect(t)
	r := runRole(t, exec.Command(m.binary, "serve", "--dir", m.dir, "--socket", m.socket))
	if r.status != 6 || !strings.Contains(r.stderr, m.socket+": another guest serves it already") {
		t.Errorf("the second one: %+v", r)
	}
	if r := shell(t.Context(), c, "echo first"); r.stdout != "first\n" {
		t.Errorf("the first one: %+v", r)
	}
	if r := shell(t.Context(), m.connect(t), "echo first"); r.stdout != "first\n" {
		t.Errorf("the first one, reached again: %+v", r)
	}
}

// TestAStaleSocketIsReplaced has one that a killed guest left.
func TestAStaleSocketIsReplaced(t *testing.T) {
	m := startMachine(t, "serve")
	boot := m.connect(t).Hello().BootID
	if err := m.role.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-m.ended
	if _, err := os.Lstat(m.socket); err != nil {
		t.Fatalf("nothing is left: this tests nothing: %v", err)
	}
	m.start(t, "serve")
	if m.connect(t).Hello().BootID == boot {
		t.Error("the boot id is the same")
	}
	m.stop(t)
	if _, err := os.Lstat(m.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a guest that ended leaves its socket: %v", err)
	}
}

// TestALostSocketIsPutBack has commands that clean up too much, or put something
// else in its place.
func TestALostSocketIsPutBack(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	c := m.connect(t)
	boot := c.Hello().BootID
	for _, script := range []string{
		`rm "$SOCKET"`,
		`rm -r "$(dirname "$SOCKET")"`,
		`rm "$SOCKET" && echo mine > "$SOCKET"`,
		`rm "$SOCKET" && mkdir "$SOCKET" && echo mine > "$SOCKET/file"`,
		`rm "$SOCKET" && ln -s /dev/null "$SOCKET"`,
		`rm -r "$(dirname "$SOCKET")" && echo mine > "$(dirname "$SOCKET")"`,
		`rm -r "$(dirname "$SOCKET")" && ln -s /nowhere "$(dirname "$SOCKET")"`,
		`rm "$SOCKET" "$SOCKET.lock" && mkdir "$SOCKET.lock"`,
	} {
		if r := shell(t.Context(), c, "SOCKET='"+m.socket+"'; "+script); r.err != nil || r.code != 0 {
			t.Fatalf("%s: %+v", script, r)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			there, err := os.Lstat(m.socket)
			if err == nil && there.Mode()&os.ModeSocket != 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: not back within a minute: %v, %v", script, there, err)
			}
		}
		again := m.connect(t)
		if again.Hello().BootID != boot {
			t.Errorf("%s: another guest serves it", script)
		}
		if r := shell(t.Context(), again, "echo x"); r.stdout != "x\n" {
			t.Errorf("%s: reached again: %+v", script, r)
		}
	}
	if r := shell(t.Context(), c, "echo x"); r.stdout != "x\n" {
		t.Errorf("over the connection that was there: %+v", r)
	}
	m.stop(t)
	if _, err := os.Lstat(m.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a guest that ended leaves its socket: %v", err)
	}
}

// TestALostLockKeepsOthersOut has another guest begin when the first one has lost
// what tells of it, and is still connected: two would serve by turns, and runs of one
// be unknown to the other.
func TestALostLockKeepsOthersOut(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	c := m.connect(t)
	boot := c.Hello().BootID
	for _, script := range []string{
		`rm "$SOCKET.lock"`,
		`rm "$SOCKET" "$SOCKET.lock"`,
		`rm -r "$(dirname "$SOCKET")"`,
		`rm -r "$SOCKET.lock" && mkdir "$SOCKET.lock"`,
	} {
		if r := shell(t.Context(), c, "SOCKET='"+m.socket+"'; "+script); r.err != nil || r.code != 0 {
			t.Fatalf("%s: %+v", script, r)
		}
		ended := make(chan roleResult, 1)
		ctx, kill := context.WithCancel(t.Context())
		second := exec.CommandContext(ctx, m.binary, "serve", "--dir", m.dir, "--socket", m.socket)
		go func() { ended <- runRole(t, second) }()
		select {
		case r := <-ended:
			if r.status != 6 {
				t.Errorf("%s: a second guest ended with %+v, want 6", script, r)
			}
		case <-time.After(patience):
			kill()
			t.Fatalf("%s: a second guest serves: %+v", script, <-ended)
		}
		kill()
		if m.connect(t).Hello().BootID != boot {
			t.Errorf("%s: another guest serves it", script)
		}
	}
}

// TestADisplacedGuestLeavesTheSocketAlone: whoever has the lock serves.
func TestADisplacedGuestLeavesTheSocketAlone(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	c := m.connect(t)
	if r := shell(t.Context(), c, "rm -r '"+filepath.Dir(m.socket)+"'"); r.err != nil || r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if err := m.role.Process.Signal(unix.SIGSTOP); err != nil { // longer than is waited for it
		t.Fatal(err)
	}
	first, firstEnded, firstStderr := m.role, m.ended, m.stderr
	t.Cleanup(func() {
		_ = first.Process.Kill()
		<-firstEnded
	})
	m.start(t, "serve")
	again := m.connect(t)
	if again.Hello().BootID == c.Hello().BootID {
		t.Fatal("the stopped guest has answered")
	}
	place, err := os.Lstat(m.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first guest sees the second one", func() bool {
		return strings.Contains(firstStderr.String(), "another guest serves it already")
	})
	if r := shell(t.Context(), c, "echo x"); r.stdout != "x\n" {
		t.Errorf("over the connection that was there: %+v", r)
	}
	if err := first.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-firstEnded; err != nil {
		t.Errorf("the first guest ended with %v", err)
	}
	firstEnded <- nil
	if there, err := os.Lstat(m.socket); err != nil || !os.SameFile(there, place) {
		t.Errorf("the second guest's socket: %v", err)
	}
}

// TestTheWorkingDirectoryIsMade has one that was deleted, and one that cannot be
// made again: the rest of the workspace must be reached all the same.
func TestTheWorkingDirectoryIsMade(t *testing.T) {
	m := newMachine(t)
	if err := os.WriteFile(m.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(t, "serve")
	c := m.connect(t)
	if r := shell(t.Context(), c, "true"); !errors.Is(r.err, unix.ENOTDIR) {
		t.Errorf("where a file is in its place: %+v", r)
	}
	m.stop(t)
	if err := os.Remove(m.dir); err != nil {
		t.Fatal(err)
	}
	m.start(t, "serve")
	defer m.stop(t)
	if r := shell(t.Context(), m.connect(t), "pwd"); r.stdout != m.dir+"\n" {
		t.Errorf("where nothing is: %+v", r)
	}
}

func TestServeRefusesASocketThatOthersReplace(t *testing.T) {
	base := t.TempDir()
	open := filepath.Join(base, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o775)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("open", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		"open/s":                   "want 0700",
		"link/s":                   "is no folder",
		"file/s":                   "is no folder",
		strings.Repeat("x", 108):   "longer than 107",
		"/proc/self/nosuch/deep/s": "making a folder",
	} {
		if !filepath.IsAbs(socket) {
			socket = filepath.Join(base, socket)
		}
		r := runRole(t, exec.Command(guestBinary(t), "serve", "--dir", base, "--socket", socket))
		if r.status != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", socket, r, want)
		}
	}
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"nothing there":  {[]string{"connect", "--socket", filepath.Join(base, "none")}, 3, "no guest serves the socket after 5s"},
		"a file":         {[]string{"connect", "--socket", filepath.Join(base, "file")}, 3, "no guest serves the socket after 5s"},
		"below a file":   {[]string{"connect", "--socket", filepath.Join(base, "file", "s")}, 3, "not a directory"},
		"no socket":      {[]string{"connect"}, 2, "--socket is missing"},
		"no such flag":   {[]string{"connect", "--sockets", "x"}, 2, "-sockets"},
		"no dir":         {[]string{"serve", "--socket", "/x"}, 2, "--dir is missing"},
		"a relative dir": {[]string{"init", "--socket", "/x", "--dir", "y"}, 2, "not absolute"},
		"an argument":    {[]string{"connect", "--socket", "/x", "y"}, 2, `unexpected argument "y"`},
		"no role":        {nil, 2, "berth-guest serves the container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runRole(t, exec.Command(guestBinary(t), test.args...))
			if r.status != test.status || !strings.Contains(r.stderr, test.stderr) {
				t.Errorf("%+v, want %d and %q", r, test.status, test.stderr)
			}
		})
	}
}

// TestAnotherUserIsRefused has the kernel keep another user out, as it does.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	m := startMachine(t, "serve")
	m.connect(t)
	cmd := exec.Command(m.binary, "connect", "--socket", m.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := os.Chmod(filepath.Dir(filepath.Dir(m.socket)), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := runRole(t, cmd); r.status != 4 || !strings.Contains(r.stderr, "another user's") {
		t.Errorf("through the folder: %+v", r)
	}
	// Even where somebody has opened folder and socket, the guest asks who comes.
	if err := errors.Join(os.Chmod(filepath.Dir(m.socket), 0o755), os.Chmod(m.socket, 0o666)); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(m.binary, "connect", "--socket", m.socket)
	again.SysProcAttr = cmd.SysProcAttr
	stdin, err := again.StdinPipe() // an end of its own would be an end of another kind
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if r := runRole(t, again); r.status != 5 || !strings.Contains(r.stderr, "refused the connection") {
		t.Errorf("through the socket: %+v", r)
	}
	if r := shell(t.Context(), m.connect(t), "echo on"); r.stdout != "on\n" {
		t.Errorf("its own user, after that: %+v", r)
	}
}

// TestConnectHoldsNothing has either side end, in every way.
func TestConnectHoldsNothing(t *testing.T) {
	m := startMachine(t, "init")
	start := func(t *testing.T) (cmd *exec.Cmd, stdin io.WriteCloser, stdout io.ReadCloser) {
		cmd = exec.Command(m.binary, "connect", "--socket", m.socket)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if stdout, err = cmd.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := stdout.Read(make([]byte, 9)); err != nil { // the server's first words
			t.Fatal(err)
		}
		return cmd, stdin, stdout
	}
	wait := func(t *testing.T, cmd *exec.Cmd) {
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("connect goes on")
			<-ended
		}
	}
	t.Run("stdin ends", func(t *testing.T) {
		cmd, stdin, _ := start(t)
		_ = stdin.Close()
		wait(t, cmd)
	})
	t.Run("stdout ends", func(t *testing.T) {
		cmd, stdin, stdout := start(t)
		_ = stdout.Close()
		// The guest has an answer to this, which nobody takes.
		if _, err := io.WriteString(stdin, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			t.Fatal(err)
		}
		wait(t, cmd)
		_ = stdin.Close()
	})
	t.Run("the guest ends", func(t *testing.T) {
		cmd, stdin, _ := start(t)
		if err := unix.Kill(serving(t, m.role.Process.Pid), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, cmd)
		_ = stdin.Close()
	})
}

func TestVersion(t *testing.T) {
	out, err := exec.Command(guestBinary(t), "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "berth-guest test (guest protocol 1, sha256:"+digestOf(t, guestBinary(t))+")") {
		t.Errorf("%v: %q", err, out)
	}
}
