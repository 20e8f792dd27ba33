package budget

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree is a hierarchy of control groups in a folder of the test, which keeps the
// kernel's rules as far as files go.
type tree struct {
	t       *testing.T
	machine machine
	mount   string
	killed  []string // the groups whose members were
}

// newTree is one with this process in the group own, in version 2. mountRoot is
// which of the groups is mounted.
func newTree(t *testing.T, mountRoot, own string) *tree {
	t.Helper()
	dir := t.TempDir()
	tr := &tree{t: t, mount: filepath.Join(dir, "mount point")}
	proc := filepath.Join(dir, "self")
	for _, path := range []string{tr.mount, proc} {
		must(t, os.Mkdir(path, 0o755))
	}
	escaped := strings.ReplaceAll(tr.mount, " ", `\040`)
	must(t, os.WriteFile(filepath.Join(proc, "cgroup"), []byte("0::"+own+"\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(proc, "mountinfo"), fmt.Appendf(nil,
		"22 1 8:1 / / rw - ext4 /dev/root rw\n30 22 0:26 %s %s rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", mountRoot, escaped), 0o644))
	tr.machine = machine{proc: proc, mkdir: tr.mkdir, rmdir: tr.rmdir, write: tr.write, delegated: func(string) bool { return true }}
	return tr
}

// at is where a group is.
func (tr *tree) at(group string) string { return filepath.Join(tr.mount, group) }

// put makes a group with the controllers that are there and those that it hands down.
func (tr *tree) put(group, controllers, handsDown string, members ...string) {
	tr.t.Helper()
	dir := tr.at(group)
	must(tr.t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		membersFile: strings.Join(members, "\n"), controllersFile: controllers, handedDownFile: handsDown, typeFile: "domain\n", killFile: "",
	} {
		must(tr.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// mkdir is the kernel's: the files of the controllers that are handed down are there.
func (tr *tree) mkdir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	has := words(filepath.Join(filepath.Dir(path), handedDownFile))
	rel, err := filepath.Rel(tr.mount, path)
	must(tr.t, err)
	tr.put(rel, strings.Join(has, " "), "")
	for controller, files := range map[string][]string{"memory": {"memory.max", "memory.oom.group", "memory.events"}, "cpu": {"cpu.max"}} {
		for _, name := range files {
			if slices.Contains(has, controller) {
				must(tr.t, os.WriteFile(filepath.Join(path, name), nil, 0o644))
			}
		}
	}
	return nil
}

func (tr *tree) rmdir(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	if len(words(filepath.Join(path, membersFile))) > 0 || len(groupsBelow(path)) > 0 {
		return unix.EBUSY
	}
	return os.RemoveAll(path)
}

func (tr *tree) write(path, value string) error {
	dir, name := filepath.Split(path)
	old, err := os.ReadFile(path)
	switch {
	case err != nil:
		return err
	case name == handedDownFile && len(words(filepath.Join(dir, membersFile))) > 0 && !isRoot(dir):
		return &fs.PathError{Op: "write", Path: path, Err: unix.EBUSY}
	case name == handedDownFile:
		value = string(old) + " " + strings.TrimPrefix(value, "+")
	case name == membersFile:
		value = string(old) + "\n" + value
	case name == killFile:
		tr.killed = append(tr.killed, filepath.Clean(dir))
		return os.WriteFile(filepath.Join(dir, membersFile), nil, 0o644)
	}
	return os.WriteFile(path, []byte(value), 0o644)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// room is made in the tree.
func (tr *tree) room(limits Limits) *Room {
	r := &Room{limits: limits.WithDefaults()}
	r.encloseOn(tr.machine, "acme")
	return r
}

func (tr *tree) read(path string) string {
	tr.t.Helper()
	text, err := os.ReadFile(path)
	must(tr.t, err)
	return strings.TrimSpace(string(text))
}

var both = Limits{Memory: 256 * mib, CPU: 0.5}

// Where version 2 lets groups be made, and where not.
func TestWhereGroupsAreMade(t *testing.T) {
	for name, test := range map[string]struct {
		mountRoot, own string
		put            func(*tree)
		parent         string // of the group; empty if there is none
		memory, cpu    bool
		why            string // part of the reason
	}{
		"beside the host in a delegated group": {
			mountRoot: "/", own: "/system.slice/berth.service/host",
			put: func(tr *tree) {
				tr.put("system.slice/berth.service", "cpu io memory pids", "")
				tr.put("system.slice/berth.service/host", "", "", "1")
			},
			parent: "system.slice/berth.service", memory: true, cpu: true,
		},
		"in a container that sees only its own": {
			mountRoot: "/docker/c0ffee", own: "/docker/c0ffee/host",
			put:    func(tr *tree) { tr.put("", "cpu memory", "memory"); tr.put("host", "memory", "", "1") },
			parent: ".", memory: true, cpu: true,
		},
		"below the very first group": {
			mountRoot: "/", own: "/",
			put: func(tr *tree) {
				tr.put("", "cpu memory", "cpu memory", "1")
				must(tr.t, os.Remove(filepath.Join(tr.mount, typeFile)))
			},
			parent: ".", memory: true, cpu: true,
		},
		"one controller alone": {
			mountRoot: "/", own: "/a/host",
			put:    func(tr *tree) { tr.put("a", "cpu pids", ""); tr.put("a/host", "", "", "1") },
			parent: "a", cpu: true, why: "has no controller memory",
		},
		"the host's own group is all there is": {
			mountRoot: "/", own: "/",
			put: func(tr *tree) { tr.put("", "cpu memory", "", "1") },
			why: "holds this process",
		},
		"the group above holds processes": {
			mountRoot: "/", own: "/a/host",
			put: func(tr *tree) { tr.put("a", "cpu memory", "", "2"); tr.put("a/host", "", "", "1") },
			why: "busy",
		},
		"the group above is another's": {
			mountRoot: "/", own: "/a/host",
			put: func(tr *tree) {
				tr.put("a", "cpu memory", "cpu memory")
				tr.put("a/host", "", "", "1")
				tr.machine.delegated = func(string) bool { return false }
			},
			why: "is not delegated",
		},
		"this process's group is not mounted": {
			mountRoot: "/docker/c0ffee", own: "/elsewhere",
			put: func(tr *tree) { tr.put("", "cpu memory", "cpu memory") },
			why: "none is mounted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, test.mountRoot, test.own)
			test.put(tr)
			r := tr.room(both)
			if r.memory != test.memory || r.cpu != test.cpu || (r.why == nil) != (test.why == "") || r.why != nil && !strings.Contains(r.why.Error(), test.why) {
				t.Fatalf("memory %v, cpu %v: %v", r.memory, r.cpu, r.why)
			}
			if test.parent == "" {
				if len(r.groups) != 0 || !strings.Contains(r.String(), "no control group: ") {
					t.Errorf("%d groups: %s", len(r.groups), r)
				}
				return
			}
			if len(r.groups) != 1 || filepath.Dir(r.groups[0].dir) != tr.at(test.parent) {
				t.Fatalf("groups %+v", r.groups)
			}
			g := r.groups[0]
			if test.memory && (tr.read(filepath.Join(g.dir, "memory.max")) != "268435456" || tr.read(filepath.Join(g.dir, "memory.oom.group")) != "1") {
				t.Error("memory is not bounded")
			}
			if test.cpu && tr.read(filepath.Join(g.dir, "cpu.max")) != "50000 100000" {
				t.Error("processor time is not bounded")
			}
			host := strings.TrimPrefix(strings.TrimPrefix(test.own, test.mountRoot), "/")
			if g.own != tr.at(host) || !strings.Contains(strings.Join(r.Env(nil), "\n"), `"command_groups":["`+tr.at(host)+`"]`) {
				t.Errorf("commands go to %s: %q", g.own, r.Env(nil))
			}
			if members := words(filepath.Join(g.own, membersFile)); !slices.Equal(members, []string{"1"}) {
				t.Errorf("in the host's group are %q", members)
			}
		})
	}
}

// What is in a group ends with it, and what the kernel has done there is known.
func TestAGroupOfVersion2(t *testing.T) {
	tr := newTree(t, "/", "/a/host")
	tr.put("a", "cpu memory", "cpu memory")
	tr.put("a/host", "cpu memory", "", "1")
	r := tr.room(both)
	must(t, r.Enter(4242))
	g := r.groups[0]
	if got := tr.read(filepath.Join(g.dir, membersFile)); got != "4242" {
		t.Errorf("members %q", got)
	}
	must(t, os.WriteFile(filepath.Join(g.dir, "memory.events"), []byte("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 1\n"), 0o644))
	if r.OOMKills() != 1 {
		t.Errorf("%d were killed for want of memory", r.OOMKills())
	}
	rel, err := filepath.Rel(tr.mount, g.dir)
	must(t, err)
	tr.put(rel+"/below", "", "") // as a plugin may make it
	must(t, r.Close())
	if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) || !slices.Equal(tr.killed, []string{g.dir}) {
		t.Errorf("%v, killed %q", err, tr.killed)
	}
	must(t, r.Close())
}

// A group that cannot have its limits is not left.
func TestAGroupWithoutItsLimitsIsNotLeft(t *testing.T) {
	tr := newTree(t, "/", "/a/host")
	tr.put("a", "cpu memory", "cpu memory")
	tr.put("a/host", "cpu memory", "", "1")
	write := tr.machine.write
	tr.machine.write = func(path, value string) error {
		if filepath.Base(path) == "cpu.max" {
			return &fs.PathError{Op: "write", Path: path, Err: unix.EINVAL}
		}
		return write(path, value)
	}
	r := tr.room(both)
	if len(r.groups) != 0 || !errors.Is(r.why, unix.EINVAL) {
		t.Errorf("%+v, %v", r.groups, r.why)
	}
	if left := groupsBelow(tr.at("a")); !slices.Equal(left, []string{tr.at("a/host")}) {
		t.Errorf("left are %q", left)
	}
}

// A new group that another host's sweep takes away is made again.
func TestASweptGroupIsMadeAgain(t *testing.T) {
	tr := newTree(t, "/", "/a/host")
	tr.put("a", "memory", "memory")
	tr.put("a/host", "memory", "", "1")
	made := 0
	tr.machine.mkdir = func(path string) error {
		err := tr.mkdir(path)
		if made++; made < 3 {
			must(t, os.RemoveAll(path))
		}
		return err
	}
	if r := tr.room(Limits{Memory: 64 * mib}); made != 3 || !r.memory || r.why != nil {
		t.Errorf("made %d times: %v", made, r.why)
	}
}

// Only what is empty and whose host is gone is swept.
func TestSweep(t *testing.T) {
	tr := newTree(t, "/", "/a/host")
	tr.put("a", "memory", "memory")
	start, err := startOf(os.Getpid())
	must(t, err)
	mine := fmt.Sprintf("%s%d-%s-00000001-acme", groupPrefix, os.Getpid(), start)
	reused := fmt.Sprintf("%s%d-%s1-00000001-acme", groupPrefix, os.Getpid(), start)
	gone := groupPrefix + "4194303-1-00000001-a-c-m-e"
	busy := groupPrefix + "4194303-1-00000002-acme"
	for _, name := range []string{mine, reused, gone, "other", groupPrefix + "what-is-this"} {
		tr.put("a/"+name, "", "")
	}
	tr.put("a/"+busy, "", "", "77")
	tr.machine.sweep(tr.at("a"))
	var left []string
	for _, dir := range groupsBelow(tr.at("a")) {
		left = append(left, filepath.Base(dir))
	}
	want := []string{mine, busy, "other", groupPrefix + "what-is-this"}
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// Where systemd manages the groups, only those that it has marked are others' to use.
func TestDelegation(t *testing.T) {
	dir, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	if !isDelegated(none, dir) {
		t.Error("it is not, where systemd is not")
	}
	if isDelegated(t.TempDir(), dir) {
		t.Error("it is, without a mark")
	}
	switch err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); {
	case errors.Is(err, unix.ENOTSUP):
		t.Log("the folder takes no attributes")
	case err != nil:
		t.Error(err)
	case !isDelegated(t.TempDir(), dir):
		t.Error("it is not, with the mark")
	}
}

// Where a controller has a hierarchy of version 1, that is taken.
func TestBothVersionsAtOnce(t *testing.T) {
	tr := newTree(t, "/", "/")
	tr.put("", "hugetlb", "", "1")
	v1 := filepath.Join(filepath.Dir(tr.mount), "memory")
	must(t, os.MkdirAll(filepath.Join(v1, "own"), 0o755))
	must(t, os.WriteFile(filepath.Join(v1, "own", membersFile), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(tr.machine.proc, "cgroup"), []byte("4:memory:/own\n1:cpu,cpuacct:/\n0::/\n"), 0o644))
	mounts := tr.read(filepath.Join(tr.machine.proc, "mountinfo"))
	must(t, os.WriteFile(filepath.Join(tr.machine.proc, "mountinfo"), []byte(mounts+"\n31 22 0:27 / "+v1+" rw - cgroup cgroup rw,memory\n"), 0o644))
	tr.machine.mkdir = func(path string) error {
		err := os.Mkdir(path, 0o755)
		for _, name := range []string{"memory.limit_in_bytes", membersFile, "memory.oom_control"} {
			must(t, os.WriteFile(filepath.Join(path, name), nil, 0o644))
		}
		return err
	}
	r := tr.room(both)
	if len(r.groups) != 1 || !r.memory || r.cpu || filepath.Dir(r.groups[0].dir) != filepath.Join(v1, "own") {
		t.Fatalf("%+v: %v", r.groups, r.why)
	}
	if got := tr.read(filepath.Join(r.groups[0].dir, "memory.limit_in_bytes")); got != "268435456" {
		t.Errorf("limit %q", got)
	}
	must(t, os.WriteFile(filepath.Join(r.groups[0].dir, "memory.oom_control"), []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 0o644))
	if r.OOMKills() != 3 {
		t.Errorf("%d were killed", r.OOMKills())
	}
}
