package docker

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var volumeSyntax = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// controlSockets give whoever can write to them the engine's machine.
var controlSockets = []string{
	"/var/run/docker.sock", "/run/docker.sock",
	"/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock",
}

// parseVolume reads one of the volumes: a folder of the engine's machine, or the
// name of a volume, and where it is in the container, with :ro for read-only.
func parseVolume(source, target string) (bind, inContainer string, err error) {
	inContainer, mode, _ := strings.Cut(target, ":")
	if err := checkContainerPath("volumes", inContainer); err != nil {
		return "", "", err
	}
	switch mode {
	case "", "ro", "rw", "z", "Z", "ro,z", "ro,Z":
	default:
		return "", "", invalidKey("volumes", "%s: mode %q: want ro, rw or nothing", source, mode)
	}
	if !volumeSyntax.MatchString(source) || source == "." {
		if source, err = hostFolder(source); err != nil {
			return "", "", err
		}
	}
	bind = source + ":" + path.Clean(inContainer)
	if mode != "" {
		bind += ":" + mode
	}
	return bind, path.Clean(inContainer), nil
}

// hostFolder makes a path absolute, from the plugin's working directory, which is
// the configuration's folder, and refuses those through which a workspace would
// own the engine. The engine may be on another machine: what is there is not
// looked at, what links are there is looked at where it is this one.
func hostFolder(source string) (string, error) {
	if rest, ok := strings.CutPrefix(source, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", invalidKey("volumes", "%s: there is no home folder: %v", source, err)
		}
		source = home + rest
	}
	if strings.ContainsAny(source, ":\x00\n\r") || source == "" {
		return "", invalidKey("volumes", "%q: a colon, a NUL or a line break cannot be in the path of a folder", source)
	}
	full, err := filepath.Abs(source)
	if err != nil {
		return "", invalidKey("volumes", "%s: %v", source, err)
	}
	resolved := full
	if there, err := filepath.EvalSymlinks(full); err == nil {
		resolved = there
	}
	for _, socket := range controlSockets {
		if within(socket, full) || within(socket, resolved) {
			return "", invalidKey("volumes", "%s: the engine's socket %s is in it, and with it a workspace could do anything on the engine's machine: mount a folder without it", source, socket)
		}
	}
	return full, nil
}
