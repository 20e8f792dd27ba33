package guest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/guest"
)

// process is one of this machine, as /proc tells.
type process struct {
	pid, parent int
	state       string
	args        []string
}

func processes(t testing.TB) (all []process) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		args, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		all = append(all, process{pid, parent, fields[0], strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")})
	}
	return all
}

// below are the processes that descend from one.
func below(t testing.TB, root int) (found []process) {
	t.Helper()
	all := processes(t)
	within := []int{root}
	for i := 0; i < len(within); i++ {
		for _, p := range all {
			if p.parent == within[i] {
				within = append(within, p.pid)
				found = append(found, p)
			}
		}
	}
	return found
}

// serving is the process that serves below init, or 0.
func serving(t testing.TB, root int) int {
	t.Helper()
	for _, p := range below(t, root) {
		if len(p.args) > 1 && p.args[1] == "serve" && p.state != "Z" {
			return p.pid
		}
	}
	return 0
}

func TestInitStartsAKilledGuestAgain(t *testing.T) {
	m := startMachine(t, "init")
	before := m.connect(t)
	boots := map[any]bool{before.Hello().BootID: true}
	registries := map[string]bool{string(before.RunRegistry()): true}
	for range 3 {
		pid := serving(t, m.role.Process.Pid)
		if pid == 0 {
			t.Fatalf("nothing serves below init: %s", m.stderr)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another process serves", func() bool {
			now := serving(t, m.role.Process.Pid)
			return now != 0 && now != pid
		})
		c := m.connect(t)
		if id := c.Hello().BootID; boots[id] {
			t.Error("the boot id is the same")
		} else {
			boots[id] = true
		}
		// What one that was killed had heard of, the next one does not know.
		if id := string(c.RunRegistry()); len(id) == 0 || registries[id] {
			t.Errorf("the registry of runs is %x again", id)
		} else {
			registries[id] = true
		}
		if r := shell(t.Context(), c, "echo still here"); r.err != nil || r.stdout != "still here\n" {
			t.Errorf("%+v", r)
		}
	}
	select {
	case <-before.Broken():
	case <-time.After(patience):
		t.Error("the connection to the killed guest is not noticed to have ended")
	}
}

// TestInitContinuesAStoppedGuest, which nothing else could.
func TestInitContinuesAStoppedGuest(t *testing.T) {
	m := startMachine(t, "init")
	c := m.connect(t)
	for range 3 {
		if err := unix.Kill(serving(t, m.role.Process.Pid), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if r := shell(ctx, c, "echo on"); r.err != nil || r.stdout != "on\n" {
			t.Errorf("%+v", r)
		}
		cancel()
	}
}

// TestInitReapsWhatIsLeftBehind leaves orphans, which nobody else waits for.
func TestInitReapsWhatIsLeftBehind(t *testing.T) {
	m := startMachine(t, "init")
	c := m.connect(t)
	for range 20 {
		if r := shell(t.Context(), c, "(setsid sleep 0.05 & ) ; (true &)"); r.err != nil || r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	eventually(t, "no orphan is left", func() bool {
		return !slices.ContainsFunc(below(t, m.role.Process.Pid), func(p process) bool {
			return p.state == "Z" || p.args[0] == "sleep"
		})
	})
}

// TestInitEndsEverything has what ends by itself, and what must be killed.
func TestInitEndsEverything(t *testing.T) {
	for name, script := range map[string]string{
		"asked":  "setsid sleep 987 >/dev/null 2>&1 & echo $!",
		"killed": `mkfifo f; setsid sh -c 'trap "" TERM; exec >/dev/null 2>&1; echo ready >f; while :; do sleep 1; done' & echo $!; read -r ready <f`,
	} {
		t.Run(name, func(t *testing.T) {
			m := startMachine(t, "init")
			c := m.connect(t)
			r := shell(t.Context(), c, script)
			pid, err := strconv.Atoi(strings.TrimSpace(r.stdout))
			if err != nil || r.err != nil {
				t.Fatalf("%+v", r)
			}
			left := below(t, m.role.Process.Pid)
			if !slices.ContainsFunc(left, func(p process) bool { return p.pid == pid }) {
				t.Fatalf("process %d is not below init: %+v", pid, left)
			}
			begun := time.Now()
			m.stop(t)
			took := time.Since(begun)
			if name == "killed" && took < 4*time.Second {
				t.Errorf("ended after %v: it had no time to end by itself", took)
			}
			for _, p := range left {
				if err := unix.Kill(p.pid, 0); !errors.Is(err, unix.ESRCH) {
					t.Errorf("process %d %q is left: %v", p.pid, p.args, err)
				}
			}
		})
	}
}

// TestInitEndsWithWhatCannotBeServed tells at once what will not mend.
func TestInitEndsWithWhatCannotBeServed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(guestBinary(t), "init", "--dir", dir, "--socket", filepath.Join(dir, "open", "s")).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "want 0700") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInitIsTheFirstProcess has a PID namespace of its own, in which commands do
// their worst to every process.
func TestInitIsTheFirstProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a PID namespace needs root")
	}
	m := startMachineIn(t, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
	c := m.connect(t)
	if r := shell(t.Context(), c, "tr '\\0' ' ' </proc/1/cmdline"); !strings.Contains(r.stdout, " init ") {
		t.Fatalf("the first process is %+v", r)
	}
	boot := c.Hello().BootID
	stream, err := begin(t.Context(), c, newRunID(), "kill -9 -1; echo unreached", false)
	if err != nil {
		t.Fatal(err)
	}
	if r := follow(stream); r.err == nil {
		t.Errorf("a command that killed its guest gave %+v", r)
	}
	eventually(t, "another guest serves", func() bool {
		conn, err := m.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// One that is being killed may still have its socket.
		next, err := guest.Connect(t.Context(), conn, "test")
		if err != nil {
			return false
		}
		_ = next.Close()
		return next.Hello().BootID != boot
	})
	c = m.connect(t)
	// None of these is a reason for a workspace to end.
	for _, name := range []string{"HUP", "USR1", "USR2", "PIPE", "ALRM", "SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS", "XCPU", "VTALRM", "TSTP", "CONT", "WINCH", "IO"} {
		if r := shell(t.Context(), c, "kill -"+name+" 1"); r.err != nil || r.code != 0 {
			t.Fatalf("SIG%s: %+v", name, r)
		}
	}
	if r := shell(t.Context(), c, "(setsid sleep 0.05 &); sleep 0.2; ps -eo stat= 2>/dev/null || cat /proc/[0-9]*/stat | sed 's/.*) //' | cut -c1"); r.err != nil || strings.Contains(r.stdout, "Z") {
		t.Errorf("zombies: %+v", r)
	}
	m.stopFirst(t)
}

// startMachineIn starts init below a program that makes it a first process.
func startMachineIn(t testing.TB, wrapper ...string) *machine {
	t.Helper()
	m := newMachine(t)
	m.wrapper = wrapper
	m.start(t, "init")
	t.Cleanup(func() {
		if m.ended != nil {
			_ = m.role.Process.Kill() // and with it what it started, as it was told
			<-m.ended
		}
	})
	return m
}

// stopFirst tells the first process to end, from outside.
func (m *machine) stopFirst(t testing.TB) {
	t.Helper()
	children := below(t, m.role.Process.Pid)
	if len(children) == 0 {
		t.Fatal("there is no first process")
	}
	if err := unix.Kill(children[0].pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-m.ended:
		m.ended = nil
		if err != nil {
			t.Errorf("it ended with %v: %s", err, m.stderr)
		}
	case <-time.After(patience):
		t.Errorf("it does not end: %s", m.stderr)
	}
	for _, p := range children {
		if err := unix.Kill(p.pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d %q is left: %v", p.pid, p.args, err)
		}
	}
}
