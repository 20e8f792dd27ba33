package posix_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// roomEnv is how many processes and threads the exhausted role may have beyond
	// those of its own process.
	roomEnv = "POSIX_TEST_ROOM"
	// sharedEnv says that others' processes count for its limit.
	sharedEnv = "POSIX_TEST_SHARED"
)

// bomb takes every process that can be had, and never ends trying, unlike a shell's
// loop, which ends when it cannot fork; $1 is this binary.
const bomb = roleEnv + "=" + roleBomb + ` exec "$1"`

// TestExhaustedProcesses is of commands under a limit of processes that a bomb
// among them has used up.
func TestExhaustedProcesses(t *testing.T) {
	dir, err := os.MkdirTemp("", "posix-exhausted") //nolint:usetesting // others cannot enter a TempDir
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "posix-role")
	must(t, os.Rename(copySelf(t), binary), os.Chmod(dir, 0o777)) //nolint:gosec // the role is another user
	cmd := roleCommand(binary, roleExhausted, dir, roomEnv+"=40")
	alone(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "fine\n") {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	eventually(t, "nothing is left", func() bool { return len(processes(t, binary)) == 0 })
}

// alone makes a command the only one whose processes count for its limit.
func alone(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		nobodys := uint32(1<<20 + os.Getpid()) //nolint:gosec // a user that has nothing else
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobodys, Gid: nobodys}
		return
	}
	if exec.Command("unshare", "--user", "true").Run() == nil {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		return
	}
	cmd.Env = append(cmd.Env, sharedEnv+"=yes")
}

// explode never returns.
func explode() {
	runtime.LockOSThread()
	pause := unix.Timespec{Nsec: int64(5 * time.Millisecond)}
	for { // with no use of the runtime, of which a child has one thread only
		if _, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); errno != 0 {
			_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&pause)), 0, 0, 0)
		}
	}
}

// exhausted runs a bomb, commands and files beside it, and commands after it.
func exhausted(dir string) error {
	posix.Reserve()
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "role", Env: testEnv, WholeMachine: true})
	if err != nil {
		return err
	}
	defer ws.Close()
	if err := limitProcesses(); err != nil {
		return err
	}
	if err := small(ws); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	own, err := ownThreads()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := ws.Start(context.Background(), script(bomb, self))
	if err != nil {
		return fmt.Errorf("the bomb: %w", err)
	}
	defer p.Close()
	for _, out := range []io.Reader{p.Stdout(), p.Stderr()} {
		go func() { _, _ = io.Copy(io.Discard, out) }()
	}
	for deadline := time.Now().Add(soon); ; {
		err := small(ws)
		if errors.Is(err, workspace.ErrTransient) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			return fmt.Errorf("while the bomb grows: %w", err)
		}
	}

	var all sync.WaitGroup
	results, files := make(chan error, 20), make(chan error, 20)
	for i := range cap(results) {
		all.Go(func() { results <- small(ws) })
		all.Go(func() {
			name := fmt.Sprint("file", i)
			w, err := ws.Create(context.Background(), name, workspace.WriteOptions{})
			if err == nil {
				_, err = w.Write(make([]byte, 1<<20))
				err = errors.Join(err, w.Close(), ws.Remove(context.Background(), name))
			}
			files <- err
		})
	}
	all.Wait()
	refused := 0
	for range cap(results) {
		if err := <-files; err != nil {
			return fmt.Errorf("a file: %w", err)
		}
		switch err := <-results; {
		case errors.Is(err, workspace.ErrTransient) && strings.Contains(err.Error(), "pids.max"):
			refused++
		case err != nil:
			return fmt.Errorf("beside the bomb: %w", err)
		}
	}
	fmt.Println(refused, "of 20 were refused")
	stopped := time.Now()
	if survivors := p.Stop(0); survivors != "" {
		return fmt.Errorf("the bomb survives: %s", survivors)
	}
	if _, err := p.Wait(); err != nil {
		return fmt.Errorf("the bomb's end: %w", err)
	}
	fmt.Println("stopped within", time.Since(stopped))
	if err := small(ws); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	now, err := ownThreads()
	if err != nil {
		return err
	}
	if now > own {
		return fmt.Errorf("this process has %d threads, and had %d before the bomb", now, own)
	}
	fmt.Println("fine")
	return nil
}

// limitProcesses sets the limit that the bomb is to meet, if there is none from
// outside.
func limitProcesses() error {
	var room int
	if _, err := fmt.Sscan(os.Getenv(roomEnv), &room); err != nil {
		return err
	}
	count, err := ownThreads()
	if os.Getenv(sharedEnv) != "" {
		count, err = usersThreads()
	}
	if err != nil || room == 0 {
		return err
	}
	limit := uint64(count + room) //nolint:gosec // a number of threads
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: limit})
}

func ownThreads() (int, error) {
	own, err := filepath.Glob("/proc/self/task/*")
	return len(own), err
}

// usersThreads counts the threads of all processes of this user.
func usersThreads() (n int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/task/*")
	for _, thread := range all {
		var stat unix.Stat_t
		if unix.Stat(thread, &stat) == nil && int(stat.Uid) == os.Getuid() {
			n++
		}
	}
	return n, err
}

// small is a command that makes no process but its own.
func small(ws *posix.Workspace) error {
	p, err := ws.Start(context.Background(), sdk.Command{Args: []string{"/bin/sh", "-c", "echo out; exit 7"}})
	if err != nil {
		return err
	}
	defer p.Close()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		return err
	}
	if code, err := p.Wait(); err != nil || code != 7 || string(out) != "out\n" {
		return fmt.Errorf("exit code %d, output %q: %w", code, out, err)
	}
	return nil
}
