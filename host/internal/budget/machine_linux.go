package budget

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The controllers that bound what is asked for.
const (
	memoryController = "memory"
	cpuController    = "cpu"
)

// machine is where control groups are, and how they are made. Tests have another.
type machine struct {
	proc  string // of this process: /proc/self
	mkdir func(path string) error
	rmdir func(path string) error
	write func(path, value string) error
	// delegated says whether this process may make groups in one of version 2, as
	// far as its manager has a say in that.
	delegated func(dir string) bool
}

func thisMachine() machine {
	return machine{
		proc:      "/proc/self",
		mkdir:     func(path string) error { return unix.Mkdir(path, 0o755) },
		rmdir:     unix.Rmdir,
		write:     write,
		delegated: func(dir string) bool { return isDelegated(systemdFolder, dir) },
	}
}

// systemdFolder is there if systemd manages the machine.
const systemdFolder = "/run/systemd/system"

// isDelegated asks for what permissions do not tell: where systemd manages the groups,
// it has others make theirs only below those that it has marked, though root may write
// to all of them, and a user to those of its own session.
func isDelegated(systemd, dir string) bool {
	if _, err := os.Stat(systemd); err != nil {
		return true
	}
	for _, name := range []string{"trusted.delegate", "user.delegate"} { // the first for root alone
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// hierarchy is one in which this process is in a group.
type hierarchy struct {
	version     int
	controllers []string // of version 1
	mount       string   // the folder where it is mounted
	own         string   // the folder of this process's group
}

// hierarchies are those that this process can reach.
func (m machine) hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile(filepath.Join(m.proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	memberships, err := os.ReadFile(filepath.Join(m.proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	var list []hierarchy
	for line := range strings.Lines(string(memberships)) { // "4:memory:/path", "0::/path"
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		h := hierarchy{version: 1, controllers: strings.Split(fields[1], ",")}
		if fields[0] == "0" && fields[1] == "" {
			h = hierarchy{version: 2}
		}
		if h.locate(string(mounts), fields[2]) {
			list = append(list, h)
		}
	}
	return list, nil
}

// locate finds the folder of the group at path in the listing of mounts.
func (h *hierarchy) locate(mounts, path string) bool {
	for line := range strings.Lines(mounts) {
		// "32 31 0:29 ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE SUPEROPTIONS"
		mount, kind, ok := strings.Cut(strings.TrimSpace(line), " - ")
		at, what := strings.Fields(mount), strings.Fields(kind)
		if !ok || len(at) < 5 || len(what) < 3 {
			continue
		}
		switch options := strings.Split(what[2], ","); {
		case h.version == 2 && what[0] != "cgroup2":
			continue
		case h.version == 1 && (what[0] != "cgroup" || !slices.ContainsFunc(h.controllers, func(c string) bool { return slices.Contains(options, c) })):
			continue
		}
		below, err := filepath.Rel(unescape(at[3]), path)
		if err != nil || !filepath.IsLocal(below) {
			continue // this process's group is not in what is mounted
		}
		h.mount = unescape(at[4])
		h.own = filepath.Join(h.mount, below)
		return utf8.ValidString(h.own)
	}
	return false
}

// unescape reads a path of a listing of mounts.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// parent finds the group in which others can be made that have these controllers,
// and has it hand them down if it does not yet. It never moves a process: a group
// of version 2 that holds any, as this process's own does, can hand nothing down.
func (h hierarchy) parent(m machine, controllers []string) (dir string, found []string, err error) {
	if h.version == 1 {
		return h.own, controllers, mayMakeGroups(h.own, h.own)
	}
	var errs []error
	for _, dir := range []string{h.own, filepath.Dir(h.own)} {
		if dir == h.own && !handsDown(dir, controllers) && !isRoot(dir) || dir == filepath.Dir(h.mount) {
			continue
		}
		if !m.delegated(dir) {
			errs = append(errs, fmt.Errorf("%s is not delegated to this user (Delegate= of systemd, with DelegateSubgroup=)", dir))
			continue
		}
		if err := mayMakeGroups(dir, h.own); err != nil {
			errs = append(errs, err)
			continue
		}
		if found, err = m.handDown(dir, controllers); len(found) > 0 {
			return dir, found, err
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s holds this process, and there is none above it", h.own))
	}
	return "", nil, errors.Join(errs...)
}

const (
	membersFile     = "cgroup.procs"
	controllersFile = "cgroup.controllers"
	handedDownFile  = "cgroup.subtree_control"
	typeFile        = "cgroup.type" // which the root of version 2 alone has not
	killFile        = "cgroup.kill"
)

// mayMakeGroups tells why none can be made in dir, or no process be brought from
// there back to this one's own.
func mayMakeGroups(dir, own string) error {
	for _, path := range []string{dir, filepath.Join(dir, membersFile), filepath.Join(own, membersFile)} {
		if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// isRoot says that a group of version 2 is the very first one, which may hold
// processes and hand controllers down.
func isRoot(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, typeFile))
	return errors.Is(err, os.ErrNotExist)
}

func words(path string) []string {
	text, _ := os.ReadFile(path) // what cannot be read has none
	return strings.Fields(string(text))
}

func handsDown(dir string, controllers []string) bool {
	has := words(filepath.Join(dir, handedDownFile))
	return !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(has, c) })
}

// handDown has the groups below dir have controllers, and tells which of them they
// have. The error is about the others.
func (m machine) handDown(dir string, controllers []string) (found []string, err error) {
	path := filepath.Join(dir, handedDownFile)
	for _, c := range controllers {
		if handsDown(dir, []string{c}) {
			found = append(found, c)
			continue
		}
		if !slices.Contains(words(filepath.Join(dir, controllersFile)), c) {
			err = errors.Join(err, fmt.Errorf("%s has no controller %s", dir, c))
			continue
		}
		if writeErr := m.write(path, "+"+c); writeErr != nil {
			err = errors.Join(err, writeErr)
			continue
		}
		found = append(found, c)
	}
	return found, err
}

// write writes one value to a file of a control group.
func write(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}
