package posix_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

// Tests start this binary again as a process with commands of its own, in one of
// these roles.
const (
	roleEnv = "POSIX_TEST_ROLE"
	dirEnv  = "POSIX_TEST_DIR"

	roleNoMain        = "no-main"        // never calls Main, and tries a command
	roleAttributes    = "attributes"     // changes all that could be inherited, then is the next
	roleAttributesRun = "attributes-run" // runs a command that tells what it has
	roleHold          = "hold"           // runs the script on its stdin, until it is killed
	roleReruns        = "reruns"         // when its stdin ends, runs 50 commands, each with new helpers
	roleStop          = "stop"           // runs the script on its stdin, and stops it when it has written something
	roleBecomeRoot    = "become-root"    // takes the rights of its file's owner, and sleeps
	roleExhausted     = "exhausted"      // runs commands under a limit of processes, beside a bomb
	roleBomb          = "bomb"           // makes as many processes as it can, for ever
	roleKillAll       = "kill-all"       // is the first process of its namespace, where a command kills all others
	roleNoProc        = "no-proc"        // has no /proc
	roleReserve       = "reserve"        // tells its threads and processors
	roleHeadless      = "headless"       // ignores TERM, ends its first thread and lives on in another
)

func playRole() {
	role := os.Getenv(roleEnv)
	if role != roleNoMain {
		posix.Main()
	}
	if role == "" {
		return
	}
	if err := play(role, os.Getenv(dirEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(role, dir string) error {
	if role == roleBecomeRoot {
		if err := unix.Setuid(0); err != nil {
			return err
		}
		fmt.Println(os.Getpid())
		time.Sleep(time.Hour)
	}
	if role == roleBomb {
		explode()
	}
	switch role {
	case roleExhausted:
		return exhausted(dir)
	case roleKillAll:
		return killAll(dir)
	case roleReserve:
		posix.Reserve()
		threads, err := ownThreads()
		fmt.Println(threads, runtime.GOMAXPROCS(0))
		return err
	case roleNoProc:
		return withoutProc(dir)
	}
	if role == roleAttributes {
		return changeAttributes()
	}
	if role == roleHeadless {
		return loseFirstThread()
	}
	env := map[string]string{"PATH": testEnv["PATH"], "LANG": "C.UTF-8"}
	input := ""
	if role == roleHold || role == roleStop {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		input = string(text)
	}
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "role", Env: env})
	if err != nil {
		return err
	}
	defer ws.Close()
	switch role {
	case roleNoMain, roleHold:
		p, err := ws.Start(context.Background(), script(input))
		if err != nil {
			return err
		}
		fmt.Println("ready")
		_, err = io.Copy(os.Stdout, p.Stdout())
		return err
	case roleStop:
		p, err := ws.Start(context.Background(), script(input))
		if err != nil {
			return err
		}
		defer p.Close()
		line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil {
			return err
		}
		begun := time.Now()
		survivors := p.Stop(0)
		_, waitErr := p.Wait()
		fmt.Printf("%s%d\n%s\n%v\n", line, time.Since(begun).Milliseconds(), survivors, waitErr)
	case roleAttributesRun:
		p, err := ws.Start(context.Background(), sdk.Command{Args: []string{"/bin/sh", "-c", tellAttributes}, Env: map[string]string{"ONE": "1"}})
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = io.Copy(os.Stdout, p.Stdout())
		return err
	case roleReruns:
		fmt.Println("ready")
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
		for i := range 50 {
			if err := rerun(dir, env); err != nil {
				return fmt.Errorf("run %d: %w", i, err)
			}
		}
		fmt.Println("50 runs")
	}
	return nil
}

// loseFirstThread ends that thread alone, on which a program's first goroutine
// begins.
func loseFirstThread() error {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() { // it has moved: begin anew
		return unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	signal.Ignore(unix.SIGTERM)
	go time.Sleep(time.Hour) // or nothing would be left to live for
	fmt.Println("ready")
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return errno // never
}

// rerun opens a workspace while no other is open, so that new helpers start.
func rerun(dir string, env map[string]string) error {
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "role", Env: env})
	if err != nil {
		return err
	}
	defer ws.Close()
	p, err := ws.Start(context.Background(), script("echo ran"))
	if err != nil {
		return err
	}
	defer p.Close()
	out, err := io.ReadAll(p.Stdout())
	if err == nil && string(out) != "ran\n" {
		err = fmt.Errorf("output %q", out)
	}
	return err
}

const tellAttributes = `
env | sed 's/^/env /'
echo "umask $(umask)"
echo "nice $(nice)"
echo "oom $(cat /proc/self/oom_score_adj)"
grep -E '^Sig(Blk|Ign)' /proc/self/status | tr '\t' ' '
echo "nofile $(ulimit -n)"
echo "core $(ulimit -c)"
echo "fsize $(ulimit -f)"
echo fds $(ls /proc/self/fd)
`

// changeAttributes makes all different and executes this binary again.
func changeAttributes() error {
	runtime.LockOSThread()
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGTSTP, unix.SIGCHLD)
	unix.Umask(0o077)
	for resource, limit := range map[int]uint64{unix.RLIMIT_NOFILE: 200, unix.RLIMIT_FSIZE: 1 << 30} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return err
		}
		now.Cur = limit
		if err := unix.Setrlimit(resource, &now); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 { // without privileges there is no way back
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 7); err != nil {
			return err
		}
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte("700"), 0); err != nil {
			return err
		}
	}
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // inherited, as it has no O_CLOEXEC
	if err != nil {
		return err
	}
	if err := unix.Dup2(fd, 77); err != nil {
		return err
	}
	blocked := unix.Sigset_t{}
	blocked.Val[0] = 1<<(unix.SIGTERM-1) | 1<<(unix.SIGUSR2-1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &blocked, nil); err != nil {
		return err
	}
	if err := os.Setenv(roleEnv, roleAttributesRun); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args[:1], os.Environ())
}

// copySelf makes a binary by whose path its processes are known.
func copySelf(t testing.TB) string {
	t.Helper()
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	path := filepath.Join(t.TempDir(), "posix-role")
	target, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// roleCommand is this binary in a role, in a process group of its own.
func roleCommand(binary, role, dir string, env ...string) *exec.Cmd {
	cmd := exec.Command(binary)
	cmd.Env = append([]string{roleEnv + "=" + role, dirEnv + "=" + dir, "PATH=" + testEnv["PATH"], "TMPDIR=" + os.TempDir()}, env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return cmd
}

// runRole runs a role to its end and returns what it says.
func runRole(t testing.TB, role, dir string, env ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := roleCommand("/proc/self/exe", role, dir, env...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("role %s: %v: %s", role, err, &stderr)
	}
	return string(out)
}

// processes are those whose command line or binary holds a word.
func processes(t testing.TB, word string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		args, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		exe, _ := os.Readlink("/proc/" + entry.Name() + "/exe")
		if (strings.Contains(string(args), word) || strings.Contains(exe, word)) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
