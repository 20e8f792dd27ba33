package budget

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// realGroup is a group of version 2 as the kernel has it, without a limit: which
// controllers it has depends on the machine.
func realGroup(t *testing.T) *group {
	t.Helper()
	m := thisMachine()
	hierarchies, err := m.hierarchies()
	must(t, err)
	i := slices.IndexFunc(hierarchies, func(h hierarchy) bool { return h.version == 2 })
	if i < 0 {
		t.Skip("no hierarchy of version 2 is mounted")
	}
	h := hierarchies[i]
	if err := mayMakeGroups(h.own, h.own); err != nil || !m.delegated(h.own) {
		t.Skipf("this user may make no groups: %v", err)
	}
	g, err := newGroup(m, 2, h.own, h.own, "acme", nil, Limits{})
	must(t, err)
	t.Cleanup(func() { must(t, g.remove()) })
	return g
}

// A process is in its group of version 2 before its first instruction, and ends with
// it.
func TestAProcessStartsInItsGroup(t *testing.T) {
	g := realGroup(t)
	r := &Room{groups: []*group{g}}
	start := func(name string, args ...string) (*exec.Cmd, *strings.Builder) {
		t.Helper()
		cmd, out := exec.Command(name, args...), new(strings.Builder)
		cmd.Stdout, cmd.SysProcAttr = out, &syscall.SysProcAttr{}
		done, prepared := r.Prepare(cmd.SysProcAttr)
		defer done()
		if !prepared {
			t.Fatal("it would not start in its group")
		}
		must(t, cmd.Start())
		return cmd, out
	}
	cat, out := start("cat", "/proc/self/cgroup")
	must(t, cat.Wait())
	if !strings.Contains(out.String(), filepath.Base(g.dir)+"\n") {
		t.Errorf("it is in %s", out)
	}
	sleep, _ := start("sleep", "600")
	must(t, r.Enter(sleep.Process.Pid)) // again
	must(t, r.Enter(1<<22))             // no process: nothing to bound
	if members := words(filepath.Join(g.dir, membersFile)); !slices.Equal(members, []string{strconv.Itoa(sleep.Process.Pid)}) {
		t.Errorf("members %q", members)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	must(t, r.Close())
	if err := <-ended; err == nil {
		t.Error("it has ended by itself")
	}
	if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is left: %v", err)
	}
}

// A real group that holds processes hands no controller down, one that does not
// does; this process is not moved in either case.
func TestARealGroupHandsDown(t *testing.T) {
	g := realGroup(t)
	has := words(filepath.Join(filepath.Dir(g.dir), handedDownFile))
	offered := words(filepath.Join(filepath.Dir(g.dir), controllersFile))
	if len(has) == 0 && len(offered) > 0 && isRoot(filepath.Dir(g.dir)) {
		// Of the very first group it can be asked for, and taken back.
		must(t, write(filepath.Join(filepath.Dir(g.dir), handedDownFile), "+"+offered[0]))
		defer func() {
			must(t, g.removeTree(g.dir))
			must(t, write(filepath.Join(filepath.Dir(g.dir), handedDownFile), "-"+offered[0]))
		}()
		has = offered[:1]
	}
	if len(has) == 0 {
		t.Skip("no controller of version 2 is handed down here")
	}
	m := thisMachine()
	sleep := exec.Command("sleep", "600")
	must(t, sleep.Start())
	must(t, g.add(sleep.Process.Pid))
	found, err := m.handDown(g.dir, has[:1])
	if len(found) != 0 || !errors.Is(err, unix.EBUSY) {
		t.Errorf("with a process in it: %q, %v", found, err)
	}
	must(t, sleep.Process.Kill())
	_ = sleep.Wait()
	if found, err := m.handDown(g.dir, has[:1]); err != nil || !slices.Equal(found, has[:1]) || !handsDown(g.dir, has[:1]) {
		t.Errorf("without: %q, %v", found, err)
	}
}

// What a process uses is what it has touched, its children's not.
func TestUsed(t *testing.T) {
	before, err := Used(os.Getpid())
	must(t, err)
	touched, err := unix.Mmap(-1, 0, 64*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	must(t, err)
	defer func() { must(t, unix.Munmap(touched)) }()
	after, err := Used(os.Getpid())
	must(t, err)
	if grown := after - before; grown < 60*mib || grown > 80*mib {
		t.Errorf("it grew by %d MiB (from %d)", grown>>20, before>>20)
	}
	if _, err := Used(1 << 22); err == nil {
		t.Error("there is a process beyond the last pid")
	}
}
