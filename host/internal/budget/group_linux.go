package budget

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// groupPrefix begins the name of every group:
	// berth-plugin-PID-START-RANDOM-PROVIDER, with the host's process and when that
	// was started.
	groupPrefix = "berth-plugin-"
	// groupTries is how often a new group is made when a sweep takes it away before
	// there is anything in it.
	groupTries = 10
	// emptyWait is how long the members of a group may take to end after SIGKILL.
	// One that takes longer sits in the kernel.
	emptyWait = 2 * time.Second
	// emptyRetry is between two looks at that.
	emptyRetry = 2 * time.Millisecond
	// period is that of the limit of processor time, which is the kernel's own.
	period = 100 * time.Millisecond
)

// group is a control group for one plugin process, in one hierarchy.
type group struct {
	machine machine
	version int
	dir     string
	own     string // the folder of the host's group
	memory  bool   // it bounds that
}

// newGroup makes a group below parent and sets its limits. One that cannot have
// them is not there.
func newGroup(m machine, version int, parent, own, provider string, controllers []string, limits Limits) (*group, error) {
	start, err := startOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	for try := range groupTries {
		g := &group{machine: m, version: version, own: own, memory: slices.Contains(controllers, memoryController)}
		g.dir = filepath.Join(parent, fmt.Sprintf("%s%d-%s-%08x-%s", groupPrefix, os.Getpid(), start, random(), provider))
		if err = m.mkdir(g.dir); err != nil {
			err = &fs.PathError{Op: "mkdir", Path: g.dir, Err: err}
		} else if err = g.limit(controllers, limits); err != nil {
			_ = m.rmdir(g.dir) // empty
		}
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) || try == groupTries {
			break
		}
	}
	return nil, err
}

// limit sets the limits of a new group.
func (g *group) limit(controllers []string, limits Limits) error {
	quota := time.Duration(limits.CPU * float64(period)).Microseconds()
	var set [][2]string
	if slices.Contains(controllers, memoryController) {
		name := "memory.max"
		if g.version == 1 {
			name = "memory.limit_in_bytes"
		}
		set = append(set, [2]string{name, strconv.FormatInt(limits.Memory, 10)})
	}
	switch {
	case !slices.Contains(controllers, cpuController):
	case g.version == 1:
		set = append(set,
			[2]string{"cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)},
			[2]string{"cpu.cfs_quota_us", strconv.FormatInt(quota, 10)})
	default:
		set = append(set, [2]string{"cpu.max", fmt.Sprintf("%d %d", quota, period.Microseconds())})
	}
	for _, s := range set {
		if err := g.machine.write(filepath.Join(g.dir, s[0]), s[1]); err != nil {
			return err
		}
	}
	if g.memory && g.version == 2 {
		// What a plugin has started is nothing without it. Older kernels have no such
		// file.
		_ = g.machine.write(filepath.Join(g.dir, "memory.oom.group"), "1")
	}
	return nil
}

// add moves a process into the group.
func (g *group) add(pid int) error {
	return g.machine.write(filepath.Join(g.dir, membersFile), strconv.Itoa(pid))
}

// oomKills counts the processes of the group that the kernel has killed for want of
// memory.
func (g *group) oomKills() int {
	name := "memory.events"
	if g.version == 1 {
		name = "memory.oom_control"
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, name)) // without it none is known
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}

// remove ends all that is in the group and in those below it, and removes them.
func (g *group) remove() error {
	deadline := time.Now().Add(emptyWait)
	for {
		g.machine.killMembers(g.dir)
		err := g.removeTree(g.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control group %s: %w", g.dir, err)
		}
		time.Sleep(emptyRetry)
	}
}

// removeTree removes a group after those that were made below it.
func (g *group) removeTree(dir string) error {
	err := g.machine.rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, below := range groupsBelow(dir) {
		if err := g.removeTree(below); err != nil {
			return err
		}
	}
	return g.machine.rmdir(dir)
}

func groupsBelow(dir string) (list []string) {
	entries, _ := os.ReadDir(dir) // what cannot be read is not removed, which is told
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}

// killMembers sends SIGKILL to all in a group and in those below it.
func (m machine) killMembers(dir string) {
	if m.write(filepath.Join(dir, killFile), "1") == nil {
		return
	}
	for _, word := range words(filepath.Join(dir, membersFile)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
			killMember(dir, pid)
		}
	}
	for _, below := range groupsBelow(dir) {
		m.killMembers(below)
	}
}

// killMember kills a process if it is still in the group once its id cannot mean
// another one any more.
func killMember(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if slices.Contains(words(filepath.Join(dir, membersFile)), strconv.Itoa(pid)) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// sweep removes the groups below parent that are empty and whose host is gone. A
// host that cannot be seen from here may live; its groups are gone only in the
// moment between their making and their use, and then it makes others.
func (m machine) sweep(parent string) {
	for _, dir := range groupsBelow(parent) {
		name, ok := strings.CutPrefix(filepath.Base(dir), groupPrefix)
		fields := strings.SplitN(name, "-", 4)
		if !ok || len(fields) != 4 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		if start, err := startOf(pid); err != nil || start != fields[1] {
			_ = m.rmdir(dir) // which fails if there is anything in it
		}
	}
}
