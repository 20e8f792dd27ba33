package budget

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// enclose makes the control groups that the limits ask for.
func (r *Room) enclose(provider string) { r.encloseOn(thisMachine(), provider) }

func (r *Room) encloseOn(m machine, provider string) {
	var want []string
	if r.limits.Memory > 0 {
		want = append(want, memoryController)
	}
	if r.limits.CPU > 0 {
		want = append(want, cpuController)
	}
	if len(want) == 0 {
		return
	}
	hierarchies, err := m.hierarchies()
	if err != nil {
		r.why = err
		return
	}
	for _, h := range hierarchies {
		here := slices.DeleteFunc(slices.Clone(want), func(c string) bool {
			return h.version == 1 && !slices.Contains(h.controllers, c) || h.version == 2 && mountedAlone(hierarchies, c)
		})
		if len(here) == 0 {
			continue
		}
		r.why = errors.Join(r.why, r.enter(m, h, provider, here))
	}
	if len(hierarchies) == 0 {
		r.why = errors.New("none is mounted that this process is in")
	}
}

// mountedAlone says that a controller has a hierarchy of version 1: so it is none of
// version 2's.
func mountedAlone(hierarchies []hierarchy, controller string) bool {
	return slices.ContainsFunc(hierarchies, func(h hierarchy) bool {
		return h.version == 1 && slices.Contains(h.controllers, controller)
	})
}

// enter makes the group in one hierarchy. The error is about what it does not bound.
func (r *Room) enter(m machine, h hierarchy, provider string, controllers []string) error {
	parent, found, why := h.parent(m, controllers)
	if h.version == 1 && why != nil || len(found) == 0 {
		return why
	}
	g, err := newGroup(m, h.version, parent, h.own, provider, found, r.limits)
	if err != nil {
		return errors.Join(why, err)
	}
	r.groups = append(r.groups, g)
	r.memory = r.memory || g.memory
	r.cpu = r.cpu || slices.Contains(found, cpuController)
	return why
}

// Prepare has a process start in its group of version 2, and reports whether it will.
// What it returns is called after the start.
func (r *Room) Prepare(attr *syscall.SysProcAttr) (done func(), prepared bool) {
	if r != nil {
		for _, g := range r.groups {
			if g.version != 2 {
				continue
			}
			if dir, err := os.Open(g.dir); err == nil {
				attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
				return func() { _ = dir.Close() }, true
			}
		}
	}
	return func() {}, false
}

// Enter puts a process that has just been started into its groups. In version 1 it
// runs for a moment before: only a program in between, which an embedder's binary
// is not, could be put there before it becomes the plugin. What a plugin has touched
// by then, a MiB or two, is charged to the host's group. The error is about limits
// that do not hold.
func (r *Room) Enter(pid int) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, g := range r.groups {
		if err := g.add(pid); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended already
			errs = append(errs, fmt.Errorf("putting pid %d into its control group: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// OOMKills counts the processes in the room that the kernel has killed, since they
// used more memory than they may.
func (r *Room) OOMKills() int {
	if r == nil {
		return 0
	}
	n := 0
	for _, g := range r.groups {
		if g.memory {
			n += g.oomKills()
		}
	}
	return n
}

// Close ends what is left in the groups, and removes them.
func (r *Room) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, g := range r.groups {
		errs = append(errs, g.remove())
	}
	return errors.Join(errs...)
}

// Sweep removes what killed hosts have left where this room's groups are.
func (r *Room) Sweep() {
	if r == nil {
		return
	}
	for _, g := range r.groups {
		g.machine.sweep(filepath.Dir(g.dir))
	}
}
