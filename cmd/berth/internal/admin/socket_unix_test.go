//go:build unix

package admin

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestListenLetsItsUserInAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "a", "b", "s")
	socket, err := Listen(t.Context(), Place{Paths: []string{path}, Named: true})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]fs.FileMode{path: 0o600 | fs.ModeSocket, filepath.Dir(path): 0o700 | fs.ModeDir, lockFile(path): 0o600} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", file, info.Mode(), err, want)
		}
	}
	for range 2 {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestListenRefusesPlacesOfOthers(t *testing.T) {
	dir := shortDir(t)
	for what, test := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a folder that others enter": {func(path string) error { return os.Mkdir(filepath.Dir(path), 0o755) }, "is open to others (mode 0755)"},
		"a file for a folder":        {func(path string) error { return os.WriteFile(filepath.Dir(path), nil, 0o600) }, "is not a folder"},
		"a file for a socket": {func(path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("mine"), 0o600))
		}, "something stands there that is no socket"},
		"a link for a lock": {func(path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Symlink("elsewhere", lockFile(path)))
		}, "locking its place"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(what, " ", "-"), "s")
		if err := test.make(path); err != nil {
			t.Fatal(err)
		}
		if s, err := Listen(t.Context(), Place{Paths: []string{path}}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want %s", what, s, err, test.want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a-file-for-a-socket", "s")); err != nil || string(data) != "mine" {
		t.Errorf("what stood there: %q, %v", data, err)
	}
}

// The next place is taken where the first cannot be had.
func TestListenTakesTheNextPlace(t *testing.T) {
	dir := shortDir(t)
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	place := Place{Paths: []string{filepath.Join(dir, "a", "s"), filepath.Join(dir, "b", "s")}}
	socket, err := Listen(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if socket.Path() != place.Paths[1] {
		t.Errorf("it is at %s", socket.Path())
	}
	var held *HeldError
	if _, err := Listen(t.Context(), place); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("a second one: %v", err)
	}
	socket.Close()
	if _, err := os.Stat(filepath.Dir(place.Paths[1])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its own folder is left: %v", err)
	}
}

// Nobody loses the place to another who comes or goes at the same time.
func TestOneHasThePlaceAtATime(t *testing.T) {
	place := Place{Paths: []string{filepath.Join(shortDir(t), "a", "s")}}
	var holders, had atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				socket, err := Listen(t.Context(), place)
				var held *HeldError
				if errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d have it", n)
				}
				had.Add(1)
				if conn, err := net.Dial("unix", place.Paths[0]); err != nil {
					t.Errorf("whoever has it is not reached: %v", err)
				} else {
					conn.Close()
				}
				holders.Add(-1)
				socket.Close()
			}
		})
	}
	wg.Wait()
	if had.Load() < 20 {
		t.Errorf("it was had %d times", had.Load())
	}
}

// asAnother runs this binary as a user who is nobody here.
func asAnother(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	// Where that user can run it.
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	file := filepath.Join(dir, "helper")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file)
	cmd.Env = []string{helperVariable + "=" + what}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// Modes that somebody has changed let nobody else in.
func TestAnotherUserIsRefused(t *testing.T) {
	place := serve(t, realHost(t))
	cmd := asAnother(t, "ask "+place.Paths[0])
	if output, _ := cmd.CombinedOutput(); !strings.Contains(string(output), "permission denied") {
		t.Errorf("through the folder's mode: %s", output)
	}
	dir := filepath.Dir(place.Paths[0])
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(place.Paths[0], 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd = asAnother(t, "ask "+place.Paths[0])
	output, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(output), "permission denied") || strings.Contains(string(output), "answered") {
		t.Errorf("another user is answered: %s", output)
	}
	connect(t, place)
}

// Root looks after other users' serves, but not after what they put where its own
// could be.
func TestRootIsLetIn(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "a", "s")
	cmd := asAnother(t, "serve "+path)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line := make([]byte, 64)
	if n, err := io.ReadAtLeast(stdout, line, len("serving\n")); err != nil || string(line[:n]) != "serving\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	client := connect(t, Place{Paths: []string{path}})
	if client.Serve.PID != cmd.Process.Pid {
		t.Errorf("pid %d, want %d", client.Serve.PID, cmd.Process.Pid)
	}
	if c, err := Connect(t.Context(), Place{Paths: []string{path}, Shared: path}); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
		t.Errorf("another user's in the temporary folder: %v, %v", c, err)
	}
}

func TestConnectSaysWhatItLookedFor(t *testing.T) {
	dir := shortDir(t)
	gone, ended, taken := filepath.Join(dir, "gone"), filepath.Join(dir, "ended"), filepath.Join(dir, "a", "taken")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: ended})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	socket, err := Listen(t.Context(), Place{Paths: []string{taken}})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	place := Place{Config: "/etc/berth.yaml", Paths: []string{gone, ended, taken}}
	_, err = Connect(t.Context(), place)
	var missed *NotServingError
	if !errors.As(err, &missed) || !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		"no berth serve of /etc/berth.yaml answers", "no socket at " + gone, "the serve that had " + ended + " has ended",
		taken + ": the socket is gone, though berth serve with pid ", "Start it with `berth -c /etc/berth.yaml serve`",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	named := Place{Paths: []string{gone}, Named: true}
	if _, err = Connect(t.Context(), named); err == nil || !strings.Contains(err.Error(), "no berth serve of the built-in configuration") || !strings.Contains(err.Error(), "`berth serve --admin-socket "+gone+"`") {
		t.Errorf("%v", err)
	}
	if _, err = Connect(t.Context(), Place{}); !errors.As(err, &missed) || !strings.Contains(err.Error(), "turned off") {
		t.Errorf("%v", err)
	}
	if _, err := Listen(t.Context(), Place{}); !errors.Is(err, errNoSocket) {
		t.Errorf("%v", err)
	}
}
