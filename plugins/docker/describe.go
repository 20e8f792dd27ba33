package docker

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// Where the guest is in a container.
const (
	guestRoot   = "/.berth"
	guestVolume = guestRoot + "/bin" // read-only
	guestBinary = guestVolume + "/" + guestName
	guestRun    = guestRoot + "/run" // its socket's folder
	// In a folder that the guest makes: the mode of a mount is not kept over a
	// container's restart by every runtime.
	guestSocket = guestRun + "/guest/socket"
)

const (
	// guestCommands is how many commands at once have their helpers beside, not in,
	// the user's pids_limit: with a limit of 64 as many as can be expected to run.
	guestCommands = 24
	// guestProcesses is for the threads of init, and of a few connections.
	guestProcesses = 30
	// guestRunSize is far more than a socket and a lock file take.
	guestRunSize = "1m"
	// logSize bounds what a container that lives for months writes about itself.
	logSize = "1m"
	// tmp is where programs expect to be able to write.
	tmp = "/tmp"
)

// capabilities are those kept of the engine's defaults: what installing packages
// and running as another user need. CHOWN, DAC_OVERRIDE, FOWNER and FSETID are
// for files of any owner, SETUID and SETGID for dropping to another user (apt,
// su), SETFCAP for packages whose files have capabilities, AUDIT_WRITE for PAM
// (su, passwd and useradd fail without it), KILL for stopping what runs as another
// user. Gone are NET_RAW (forged packets), MKNOD (devices), SYS_CHROOT, SETPCAP
// and NET_BIND_SERVICE (the engine lets everybody bind low ports in a network
// namespace of its own).
var capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID",
}

// podmanDrops are those of Podman's defaults that are not kept.
var podmanDrops = []string{"MKNOD", "NET_BIND_SERVICE", "NET_RAW", "SETPCAP", "SYS_CHROOT"}

// capabilities are what is dropped of the engine's, and what is added then. Podman
// has every process of another user than root use what was added, where Docker has
// only programs that gain privileges do so: there none is.
func (p *plan) capabilities() (drop, add []string) {
	if p.podman && p.who.uid != 0 {
		return podmanDrops, nil
	}
	return []string{"ALL"}, capabilities
}

// description is a container that is to be made.
type description struct {
	name   string
	config *container.Config
	host   *container.HostConfig
}

// describe says what container to make. Configured environment is not in it: it
// travels with each command (contract C9).
func (p *plan) describe(name string, labels map[string]string) description {
	c := p.config
	init := false
	d := description{
		name: name,
		config: &container.Config{
			Image: p.imageRef,
			User:  p.user,
			// An image's own server is not started, so its health says nothing.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      labels,
			StopSignal:  "SIGTERM",
		},
		host: &container.HostConfig{
			Binds:          slices.Clone(c.binds),
			Tmpfs:          p.tmpfs(),
			NetworkMode:    container.NetworkMode(c.NetworkMode),
			Runtime:        c.OCIRuntime,
			ReadonlyRootfs: c.ReadOnly,
			SecurityOpt:    []string{"no-new-privileges"},
			LogConfig:      container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": logSize}},
			Init:           &init,
			Resources: container.Resources{
				Memory:     int64(c.MemLimit),
				MemorySwap: int64(c.MemLimit),
				NanoCPUs:   int64(c.CPUs * 1e9),
				CPUShares:  c.CPUShares,
				PidsLimit:  p.pids(),
			},
		},
	}
	d.host.CapDrop, d.host.CapAdd = p.capabilities()
	if p.guest.volume != "" {
		d.host.Mounts = append(d.host.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: p.guest.volume, Target: guestVolume, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: p.guest.volumeLabels},
		})
	}
	if p.workVolume() {
		d.host.Mounts = append(d.host.Mounts, mount.Mount{
			// The engine names it: so a workspace of the same name never meets the
			// files of the one before, and both are removed in one call.
			Type: mount.TypeVolume, Target: p.workDir,
			VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{
				workspace.LabelManaged: "true", workspace.LabelProvider: labels[workspace.LabelProvider],
				labelToken: labels[labelToken], labelName: labels[labelName],
			}},
		})
	}
	if p.guest.how == guestInit {
		d.config.Entrypoint = []string{guestBinary, "init", "--dir", p.workDir, "--socket", guestSocket}
		return d
	}
	// Something that lasts. As the first process it would ignore TERM and leave
	// zombies, so the engine's own init goes before it.
	*d.host.Init = true
	d.config.Entrypoint = []string{"tail", "-f", "/dev/null"}
	return d
}

// workVolume says whether the work directory is a volume of ours.
func (p *plan) workVolume() bool {
	return p.config.ReadOnly && !p.config.covered(p.workDir)
}

// covered says whether a volume or a tmpfs of the configuration has dir.
func (c checked) covered(dir string) bool {
	return slices.ContainsFunc(c.mounted, func(target string) bool { return within(dir, target) })
}

// tmpfs are the folders in memory. The engine mounts them noexec unless told
// otherwise, which breaks the building of packages.
func (p *plan) tmpfs() map[string]string {
	all := map[string]string{}
	for target, options := range p.config.Tmpfs {
		target = path.Clean(target)
		list := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool { return o == "" })
		if !slices.Contains(list, "exec") && !slices.Contains(list, "noexec") {
			list = append(list, "exec")
		}
		has := func(key string) bool {
			return slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, key+"=") })
		}
		if target == p.workDir && !has("uid") && !has("gid") && !has("mode") {
			list = append(list, p.ownedTmpfs("0755"))
		}
		all[target] = strings.Join(list, ",")
	}
	if p.config.ReadOnly && !p.config.covered(tmp) && p.workDir != tmp {
		all[tmp] = "exec,mode=1777"
	}
	if p.guest.how == guestInit || p.guest.how == guestExec {
		all[guestRun] = "size=" + guestRunSize + "," + p.ownedTmpfs("0700")
	}
	return all
}

// podmanTmpfsMode is that of a folder in memory which is open to all users.
const podmanTmpfsMode = "mode=1777"

// ownedTmpfs are the options of one that belongs to the container's user. Podman
// has none for that: there it is everybody's, as /tmp is. The guest makes a folder
// of its own in it and goes into nobody else's.
func (p *plan) ownedTmpfs(mode string) string {
	switch {
	case p.who.uid == 0 && p.who.gid == 0:
		return "mode=" + mode
	case p.podman:
		return podmanTmpfsMode
	}
	return fmt.Sprintf("mode=%s,uid=%d,gid=%d", mode, p.who.uid, p.who.gid)
}

// pids is the user's limit, with what the guest itself takes on top.
func (p *plan) pids() *int64 {
	limit := int64(DefaultPidsLimit)
	if p.config.PidsLimit != nil {
		limit = *p.config.PidsLimit
	}
	if limit <= 0 {
		limit = -1
		return &limit
	}
	if p.guest.how == guestInit || p.guest.how == guestExec {
		limit += int64(posix.PIDs(guestCommands) + guestProcesses)
	}
	return &limit
}
