package docker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// minMemory is the engine's own least.
	minMemory Size = 6 << 20
	// minGuestMemory is what the guest, and a program beside it, can be run in.
	minGuestMemory Size = 24 << 20
	// maxNameLen is what the engine takes as a host's name.
	maxNameLen = 255
)

var (
	userSyntax      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	containerSyntax = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)
	networkSyntax   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.:-]*$`)
	runtimeSyntax   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_./-]*$`)
	optionsSyntax   = regexp.MustCompile(`^[A-Za-z0-9_=:%.+-]+(,[A-Za-z0-9_=:%.+-]+)*$`)
)

// checked is what a configuration says once it is found to be sound.
type checked struct {
	Config

	// binds are the volumes in the engine's syntax, sorted.
	binds []string
	// mounted are the paths in the container that volumes and tmpfs cover.
	mounted []string
}

func invalidKey(key, format string, args ...any) error {
	return fmt.Errorf("config key %s: %s: %w", key, fmt.Sprintf(format, args...), workspace.ErrInvalid)
}

// check fills in defaults and says what is wrong: the key, its value, and what
// would be right. The error wraps [workspace.ErrInvalid].
func (c Config) check() (checked, error) {
	for _, check := range []func() error{
		c.checkImage, c.checkLimits, c.checkNames, c.checkTmpfs,
		func() error { return checkWorkDir(cmp.Or(c.WorkDir, DefaultWorkDir)) },
	} {
		if err := check(); err != nil {
			return checked{}, err
		}
	}
	done := checked{Config: c}
	done.Guest = cmp.Or(c.Guest, guestAuto)
	for _, source := range slices.Sorted(maps.Keys(c.Volumes)) {
		bind, target, err := parseVolume(source, c.Volumes[source])
		if err != nil {
			return checked{}, err
		}
		if slices.Contains(done.mounted, target) {
			return checked{}, invalidKey("volumes", "two of them are to be at %s", target)
		}
		done.binds = append(done.binds, bind)
		if err := checkMount("volumes", target); err != nil {
			return checked{}, err
		}
		done.mounted = append(done.mounted, target)
	}
	for _, target := range slices.Sorted(maps.Keys(c.Tmpfs)) {
		target = path.Clean(target)
		if slices.Contains(done.mounted, target) {
			return checked{}, invalidKey("tmpfs", "%s is among the volumes too, or given twice", target)
		}
		if err := checkMount("tmpfs", target); err != nil {
			return checked{}, err
		}
		done.mounted = append(done.mounted, target)
	}
	return done, nil
}

// checkMount refuses what would hide the guest.
func checkMount(key, target string) error {
	switch {
	case target == "/":
		return invalidKey(key, "/: cannot be the container's whole file system")
	case within(guestRoot, target) || within(target, guestRoot):
		return invalidKey(key, "%s: the guest is at %s: choose another path", target, guestRoot)
	}
	return nil
}

// kernelFolders are made anew at each start, by the engine, and hold no files that
// last.
var kernelFolders = []string{"/proc", "/sys", "/dev"}

// checkWorkDir checks where commands are to start.
func checkWorkDir(dir string) error {
	for _, folder := range kernelFolders {
		if within(path.Clean(dir), folder) {
			return invalidKey("work_dir", "%s: %s is the kernel's and not for files: want such as %s", dir, folder, DefaultWorkDir)
		}
	}
	return checkContainerPath("work_dir", dir)
}

func (c Config) hasRuntime() bool {
	return c.Runtime.Given()
}

func (c Config) checkImage() error {
	if c.hasRuntime() {
		if c.Image != "" {
			return invalidKey("runtime", "image %s is given too: a runtime has an image of its own, so leave one of them out", c.Image)
		}
		_, err := c.Runtime.Parse()
		return err
	}
	if c.Image == "" {
		return nil
	}
	if _, err := reference.ParseAnyReference(c.Image); err != nil {
		return invalidKey("image", "%q: %v: want such as %s", c.Image, err, DefaultImage)
	}
	return nil
}

func (c Config) checkLimits() error {
	switch {
	case c.MemLimit < 0 || c.MemLimit > 0 && c.MemLimit < minMemory:
		return invalidKey("mem_limit", "%d bytes: want at least 6m", c.MemLimit)
	case c.CPUs < 0 || c.CPUs > 0 && c.CPUs < minCPUs || c.CPUs > maxCPUs:
		return invalidKey("cpus", "%v: want at least %v, such as 1.5", c.CPUs, minCPUs)
	case c.CPUShares < 0 || c.CPUShares == 1 || c.CPUShares > maxCPUShares:
		return invalidKey("cpu_shares", "%d: want 2 to %d, where 1024 is what others have", c.CPUShares, maxCPUShares)
	case c.PidsLimit != nil && (*c.PidsLimit < -1 || *c.PidsLimit > maxPids):
		return invalidKey("pids_limit", "%d: want the number of processes, or -1 for no limit", *c.PidsLimit)
	}
	return nil
}

const (
	minCPUs      = 0.01 // the engine's
	maxCPUs      = 1 << 16
	maxCPUShares = 262144  // the kernel's
	maxPids      = 1 << 22 // the kernel's
)

func (c Config) checkNames() error {
	for id := range strings.SplitSeq(c.User, ":") {
		if n, err := strconv.ParseUint(id, 10, 64); err == nil && n > math.MaxInt32 || errors.Is(err, strconv.ErrRange) {
			return invalidKey("user", "%q: want numbers up to %d", c.User, math.MaxInt32)
		}
	}
	switch {
	case c.User != "" && !userSyntax.MatchString(c.User):
		return invalidKey("user", "%q: want a name or a number, and a group after a colon if need be, such as 1000:1000", c.User)
	case c.NetworkMode != "" && !networkSyntax.MatchString(c.NetworkMode):
		return invalidKey("network_mode", "%q: want bridge, none, host or the name of a network", c.NetworkMode)
	case c.OCIRuntime != "" && !runtimeSyntax.MatchString(c.OCIRuntime):
		return invalidKey("oci_runtime", "%q: want the name of a runtime that the engine knows, such as runsc", c.OCIRuntime)
	case c.ContainerName != "" && (!containerSyntax.MatchString(c.ContainerName) || len(c.ContainerName) > maxNameLen):
		return invalidKey("container_name", "%q: want 2 or more of A-Z, a-z, 0-9, _, . and -, with a letter or digit at the beginning", c.ContainerName)
	case c.ContainerName != "" && workspace.IsToken(c.ContainerName):
		return invalidKey("container_name", "%q: has the form of a token, which only the host gives", c.ContainerName)
	}
	switch c.Guest {
	case "", guestAuto, guestInit, guestExec, guestOff:
		return nil
	}
	return invalidKey("guest", "%q: want auto, init, exec or off", c.Guest)
}

func (c Config) checkTmpfs() error {
	for _, target := range slices.Sorted(maps.Keys(c.Tmpfs)) {
		if err := checkContainerPath("tmpfs", target); err != nil {
			return err
		}
		if options := c.Tmpfs[target]; options != "" && !optionsSyntax.MatchString(options) {
			return invalidKey("tmpfs", "%s: options %q: want mount options with commas, such as size=64m,mode=1777", target, options)
		}
	}
	return nil
}

// checkContainerPath checks a path in the container, which travels in the
// engine's own syntaxes.
func checkContainerPath(key, p string) error {
	switch {
	case !path.IsAbs(p):
		return invalidKey(key, "%q: want an absolute path", p)
	case path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/":
		return invalidKey(key, "%q: want it without . and .. and double slashes: %s", p, path.Clean(p))
	case strings.ContainsAny(p, ":\x00\n\r"):
		return invalidKey(key, "%q: a colon, a NUL or a line break cannot be in it", p)
	}
	return nil
}

// within says whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
