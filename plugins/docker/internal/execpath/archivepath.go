package execpath

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/berth-dev/berth/shared/workspace"
)

// mounts are the places of a container's mounts, and whether each is out of the
// engine's reach: it has the root file system and the volumes, but what the container
// has in memory is only in the container.
type mounts map[string]bool

func mountsOf(state container.InspectResponse) mounts {
	m := mounts{"/proc": true, "/sys": true, "/dev": true}
	for _, point := range state.Mounts {
		m[path.Clean(point.Destination)] = point.Type == mount.TypeTmpfs
	}
	if state.HostConfig != nil {
		for target := range state.HostConfig.Tmpfs {
			m[path.Clean(target)] = true
		}
	}
	return m
}

// hides says whether what the container has at a path without links is not what the
// engine sees there.
func (m mounts) hides(abs string) bool {
	for at := abs; at != "/"; at = path.Dir(at) {
		if hidden, ok := m[at]; ok {
			return hidden
		}
	}
	return m["/"]
}

// hidesBelow says it of anything at or below a path.
func (m mounts) hidesBelow(abs string) bool {
	if m.hides(abs) {
		return true
	}
	for target, hidden := range m {
		if hidden && strings.HasPrefix(target, strings.TrimSuffix(abs, "/")+"/") {
			return true
		}
	}
	return false
}

var errHidden = fmt.Errorf("it lies in the container's memory (a tmpfs, /proc, /sys or /dev), where without a guest or a shell in the container nobody gets: "+
	"use a volume, or an image with a shell: %w", errors.ErrUnsupported)

// readlink is what a link holds: the engine's stat tells only where it leads.
func (a *archive) readlink(ctx context.Context, abs string) (string, error) {
	d, header, err := a.file(ctx, abs)
	if err == nil && header.Typeflag != tar.TypeSymlink { // Podman follows it, but not in a directory
		if err = d.Close(); err == nil {
			d, header, err = a.find(ctx, path.Dir(abs), path.Base(abs))
		}
	}
	if err != nil {
		return "", err
	}
	if header.Typeflag != tar.TypeSymlink {
		err = fmt.Errorf("it has just been replaced: %w", workspace.ErrTransient)
	}
	return header.Linkname, errors.Join(err, d.Close())
}

// maxLinks is after how many links a path is called a loop, as in Linux.
const maxLinks = 40

// resolve follows the links of a path, of its last element only if last, and keeps
// names that are missing.
func (a *archive) resolve(ctx context.Context, abs string, last bool) (string, error) {
	done, todo := "", strings.Split(abs, "/")
	followed := map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = done[:max(strings.LastIndexByte(done, '/'), 0)]
			continue
		}
		if a.mounts.hides(orRoot(done)) {
			return "", errHidden
		}
		next := done + "/" + name
		stat, err := a.head(ctx, next)
		switch {
		case errdefs.IsNotFound(err), errors.Is(err, syscall.ENOTDIR):
			done = next
			continue
		case err != nil:
			return "", err
		case stat.Mode&fs.ModeSymlink == 0, len(todo) == 0 && !last:
			done = next
			continue
		}
		step := next + "/" + strings.Join(todo, "/")
		if followed[step] || len(followed) == maxLinks {
			return "", syscall.ELOOP
		}
		followed[step] = true
		target, err := a.readlink(ctx, next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = ""
		}
		todo = slices.Concat(strings.Split(target, "/"), todo)
	}
	return orRoot(done), nil
}

func orRoot(done string) string {
	if done == "" {
		return "/"
	}
	return done
}

// missing tells a file above from nothing at all: the engine does not.
func (a *archive) missing(ctx context.Context, abs string, err error) error {
	for dir := path.Dir(abs); dir != "/"; dir = path.Dir(dir) {
		if stat, headErr := a.head(ctx, dir); headErr == nil {
			if !stat.Mode.IsDir() {
				return syscall.ENOTDIR
			}
			return err
		}
	}
	return err
}

// RealPath resolves like realpath -m (contract F7).
func (a *archive) RealPath(ctx context.Context, name string) (string, error) {
	resolved, err := a.resolve(ctx, a.path(name), true)
	return resolved, a.explain(ctx, "realpath", name, err)
}
