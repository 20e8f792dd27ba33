package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/shared/workspace"
)

// dirMode is that of a work directory that we make.
const dirMode = 0o755

// prepare does what a container needs before its first start: the guest in its
// volume, and a work directory of the user's own.
func (p *provider) prepare(ctx context.Context, c container.InspectResponse, r record) error {
	if r.Guest == guestInit || r.Guest == guestExec {
		if err := p.ensureGuest(ctx, c); err != nil {
			return err
		}
	}
	if err := p.makePodmanFolders(ctx, c, r); err != nil {
		return err
	}
	return p.makeWorkDir(ctx, c, r)
}

// makePodmanFolders makes the folders on which Podman mounts memory that is open to
// all users: at each start but the first the memory gets the mode of its folder.
func (p *provider) makePodmanFolders(ctx context.Context, c container.InspectResponse, r record) error {
	if podman, err := p.isPodman(ctx); err != nil || !podman || r.UID == 0 || c.HostConfig == nil {
		return err
	}
	for target, options := range c.HostConfig.Tmpfs {
		if !strings.Contains(options, podmanTmpfsMode) {
			continue
		}
		missing, parent, err := p.missing(ctx, c, target)
		if err != nil {
			return err
		}
		var entries []tar.Header
		for i := range missing {
			entry := directory(path.Join(missing[:i+1]...))
			if i == len(missing)-1 {
				entry.Mode = 0o1777
			}
			entries = append(entries, entry)
		}
		if len(entries) == 0 {
			continue
		}
		if err := p.putDirectories(ctx, c.ID, parent, entries); err != nil {
			return err
		}
	}
	return nil
}

// ensureGuest makes sure that a container's guest volume holds the guest that
// its label names. One of another version is not looked at: its own plugin did.
func (p *provider) ensureGuest(ctx context.Context, c container.InspectResponse) error {
	bin, ok, err := p.guestOf(ctx, c)
	if err != nil || !ok {
		return err
	}
	return p.volumes.Ensure(ctx, bin, c.ID, guestVolume, c.Image)
}

// replaceGuest looks at the volume again.
func (p *provider) replaceGuest(ctx context.Context, c container.InspectResponse) error {
	bin, ok, err := p.guestOf(ctx, c)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("its guest is of another version than this plugin's: %w", workspace.ErrUnavailable)
	}
	if err := p.volumes.Forget(ctx, bin.Digest); err != nil {
		return err
	}
	return p.volumes.Ensure(ctx, bin, c.ID, guestVolume, c.Image)
}

// guestOf is our binary, if it is the one that the container was made with.
func (p *provider) guestOf(ctx context.Context, c container.InspectResponse) (guestvolume.Binary, bool, error) {
	system, err := p.architecture(ctx)
	if err != nil {
		return guestvolume.Binary{}, false, err
	}
	bin, err := p.binaries.binary(system)
	if err != nil {
		return guestvolume.Binary{}, false, nil //nolint:nilerr // then it is not ours
	}
	return bin, bin.Digest == c.Config.Labels[labelGuest], nil
}

// makeWorkDir makes the work directory, if the image has none, and gives it to
// the container's user: through the archive, since there may be no shell in the
// image, and as the engine itself would leave it to root. A volume that we have
// for it is the user's in any case, for nobody else could write there.
func (p *provider) makeWorkDir(ctx context.Context, c container.InspectResponse, r record) error {
	if volume := workVolumeOf(c, r); volume != "" {
		return p.giveVolume(ctx, c, r, volume)
	}
	if covered(c, r.WorkDir) {
		return nil // in memory, which the archive does not reach: it has its options
	}
	missing, parent, err := p.missing(ctx, c, r.WorkDir)
	if err != nil || len(missing) == 0 || r.madeByGuest() {
		return err
	}
	entries := make([]tar.Header, 0, len(missing))
	name := ""
	for i, element := range missing {
		name = path.Join(name, element)
		entry := directory(name)
		if i == len(missing)-1 {
			entry.Uid, entry.Gid = r.UID, r.GID
		}
		entries = append(entries, entry)
	}
	return p.putDirectories(ctx, c.ID, parent, entries)
}

// madeByGuest says whether the guest makes a missing work directory at its start
// and so makes it the user's: that saves the engine's slowest call.
func (r record) madeByGuest() bool {
	return r.Guest == guestInit && r.UID == 0 && r.GID == 0 && !r.ReadOnly
}

func directory(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: dirMode, ModTime: time.Now(), Format: tar.FormatPAX}
}

func (p *provider) putDirectories(ctx context.Context, id, parent string, entries []tar.Header) error {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, entry := range entries {
		if err := w.WriteHeader(&entry); err != nil {
			return fmt.Errorf("packing the work directory: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("packing the work directory: %w", err)
	}
	return p.engine.Change(ctx, "making the work directory", func(ctx context.Context, api *client.Client) error {
		return api.CopyToContainer(ctx, id, parent, &packed, container.CopyToContainerOptions{})
	})
}

// missing are the elements of dir that are not there yet, and the directory in
// which the first of them belongs.
func (p *provider) missing(ctx context.Context, c container.InspectResponse, dir string) (elements []string, parent string, err error) {
	elements = strings.FieldsFunc(dir, func(r rune) bool { return r == '/' })
	for parent = "/"; len(elements) > 0; elements = elements[1:] {
		next := path.Join(parent, elements[0])
		stat, err := p.stat(ctx, c, next)
		switch {
		case errdefs.IsNotFound(err):
			return elements, parent, nil
		case err != nil:
			return nil, "", err
		case !stat.Mode.IsDir() && stat.Mode&fs.ModeSymlink == 0:
			return nil, "", invalidKey("work_dir", "%s: %s is a file in the image", dir, next)
		}
		parent = next
	}
	return nil, parent, nil
}

func (p *provider) stat(ctx context.Context, c container.InspectResponse, path string) (stat container.PathStat, err error) {
	err = p.engine.Query(ctx, "looking for "+path+" in container "+nameOf(c), func(ctx context.Context, api *client.Client) error {
		stat, err = api.ContainerStatPath(ctx, c.ID, path)
		return err
	})
	return stat, err
}

// giveVolume makes the volume's own directory the user's. The archive of the
// container itself reaches only what is in it, and its root cannot be written: so
// another container shows the volume below a root that can.
func (p *provider) giveVolume(ctx context.Context, c container.InspectResponse, r record, volume string) error {
	const shown = "volume"
	entry := directory(shown)
	entry.Uid, entry.Gid = r.UID, r.GID
	if stat, err := p.stat(ctx, c, r.WorkDir); err == nil && stat.Mode.IsDir() {
		entry.Mode = int64(stat.Mode.Perm()) // the image's own, if it has the directory
	}
	host := &container.HostConfig{Mounts: []mount.Mount{{
		Type: mount.TypeVolume, Source: volume, Target: "/" + shown, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}}}
	return p.withHelper(ctx, c.Image, host, func(id string) error {
		return p.putDirectories(ctx, id, "/", []tar.Header{entry})
	})
}

// anonymousVolume is a name that an engine has given.
var anonymousVolume = regexp.MustCompile(`^[0-9a-f]{64}$`)

// givePodmanVolume makes our volume for the work directory the user's after the first
// start, at which Podman gives it to the owner of the image's own directory. Podman
// does not tell which volumes were asked for, and the archive of the container
// reaches the volume itself.
func (p *provider) givePodmanVolume(ctx context.Context, c container.InspectResponse, r record) error {
	ours := r.ReadOnly && slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool {
		return m.Type == mount.TypeVolume && m.Destination == r.WorkDir && anonymousVolume.MatchString(m.Name)
	})
	if !ours {
		return nil
	}
	if podman, err := p.isPodman(ctx); err != nil || !podman {
		return err
	}
	stat, err := p.stat(ctx, c, r.WorkDir)
	if err != nil {
		return err
	}
	entry := directory(".")
	entry.Uid, entry.Gid, entry.Mode = r.UID, r.GID, int64(stat.Mode.Perm())
	return p.putDirectories(ctx, c.ID, r.WorkDir, []tar.Header{entry})
}

// workVolumeOf is the name of our volume for the work directory, or empty.
func workVolumeOf(c container.InspectResponse, r record) string {
	if c.HostConfig == nil || !r.ReadOnly {
		return ""
	}
	ours := false
	for _, m := range c.HostConfig.Mounts {
		ours = ours || m.Type == mount.TypeVolume && m.Source == "" && m.Target == r.WorkDir
	}
	for _, m := range c.Mounts {
		if ours && m.Type == mount.TypeVolume && m.Destination == r.WorkDir {
			return m.Name
		}
	}
	return ""
}

// covered says whether dir lies in the memory of a container.
func covered(c container.InspectResponse, dir string) bool {
	deepest, memory := "", false
	note := func(target string, inMemory bool) {
		if within(dir, target) && len(target) > len(deepest) {
			deepest, memory = target, inMemory
		}
	}
	for _, m := range c.Mounts {
		note(strings.TrimSuffix(m.Destination, "/"), m.Type == mount.TypeTmpfs)
	}
	if c.HostConfig != nil {
		for target := range c.HostConfig.Tmpfs {
			note(target, true)
		}
	}
	return memory
}
