package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// execTimeout is for a small command in a container: an exec takes some 60 ms.
	execTimeout = 30 * time.Second
	// maxExecOutput is how much of its output is read.
	maxExecOutput = 64 << 10
	// digestPart is how much of the digest a path holds.
	digestPart = 16
)

// site is where a guest is that was started by exec.
type site struct{ binary, socket string }

// dialDaemon connects to a guest, which it starts if it does not run. Of two that
// start, one ends. One that is not there is put there again by replace, once.
func (p *provider) dialDaemon(ctx context.Context, r *room, s site, replace func(context.Context) error) (net.Conn, error) {
	err := p.startDaemon(ctx, r, s)
	if errors.Is(err, errNoProgram) && replace != nil {
		if again := replace(ctx); again != nil {
			err = errors.Join(err, again)
		} else {
			err = p.startDaemon(ctx, r, s)
		}
	}
	if err != nil {
		return nil, p.explain(ctx, r, err)
	}
	return p.dial(ctx, r, s.binary, s.socket)
}

// startDaemon starts the guest on its own, apart from any stream of ours.
func (p *provider) startDaemon(ctx context.Context, r *room, s site) error {
	return p.engine.Change(ctx, "starting the guest in container "+r.name, func(ctx context.Context, api *client.Client) error {
		made, err := api.ContainerExecCreate(ctx, r.container, container.ExecOptions{
			Cmd:  []string{s.binary, "serve", "--dir", r.record.WorkDir, "--socket", s.socket},
			User: r.record.User,
		})
		if err != nil {
			return err
		}
		return refused(api.ContainerExecStart(ctx, made.ID, container.ExecStartOptions{Detach: true}))
	})
}

// reachForeign places the guest beside what somebody else runs, and says why if
// that cannot be done.
func (p *provider) reachForeign(ctx context.Context, r *room, c container.InspectResponse) (reason string, err error) {
	if p.config.Guest == guestOff {
		return "as configured", errors.New("no guest is wanted")
	}
	system, err := p.architecture(ctx)
	if err != nil {
		return err.Error(), err
	}
	bin, err := p.binaries.binary(system)
	if err != nil {
		return "there is no " + guestName + "-" + system + " in " + p.binaries.dir, err
	}
	// A container that was started again may have lost it: it is looked for with
	// each connection.
	err = p.reachGuest(ctx, r, bin.Digest, func(ctx context.Context) (net.Conn, error) {
		s, err := p.placeForeign(ctx, r, c, bin)
		if err != nil {
			return nil, err
		}
		return p.dialDaemon(ctx, r, s, nil)
	})
	if err != nil {
		return err.Error(), err
	}
	return "", nil
}

// placeForeign puts the guest where it can be run: through the archive on a root
// that can be written, else through a shell into a folder in memory.
func (p *provider) placeForeign(ctx context.Context, r *room, c container.InspectResponse, bin guestvolume.Binary) (site, error) {
	var errs []error
	if c.HostConfig == nil || !c.HostConfig.ReadonlyRootfs {
		s, err := p.placeOnRoot(ctx, r, c, bin)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	for _, dir := range memoryFolders(c) {
		s, err := p.placeByShell(ctx, r, dir, bin)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("its root is read-only, and nothing else can be written"))
	}
	return site{}, fmt.Errorf("placing the guest in container %s: %w", r.name, errors.Join(errs...))
}

func (p *provider) placeOnRoot(ctx context.Context, r *room, c container.InspectResponse, bin guestvolume.Binary) (site, error) {
	who, err := p.identifyIn(ctx, c, firstOf(r.record.User, c.Config.User))
	if err != nil {
		return site{}, err
	}
	version := "guest-" + bin.Digest[:digestPart]
	folder := path.Join(guestRoot, version)
	s := site{binary: path.Join(folder, guestName), socket: path.Join(folder, fmt.Sprintf("user-%d", who.uid), "socket")}
	if p.runs(ctx, r, s.binary, bin) == nil {
		if _, err := p.stat(ctx, c, path.Dir(s.socket)); err == nil {
			return s, nil
		}
	}
	content, err := bin.Read()
	if err != nil {
		return site{}, err
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	root := strings.TrimPrefix(guestRoot, "/")
	run := directory(path.Join(root, version, path.Base(path.Dir(s.socket))))
	run.Mode, run.Uid, run.Gid = 0o700, who.uid, who.gid
	headers := []tar.Header{
		directory(root), directory(path.Join(root, version)), run,
		{Typeflag: tar.TypeReg, Name: path.Join(root, version, guestName), Mode: dirMode, Size: int64(len(content)), ModTime: time.Now(), Format: tar.FormatPAX},
	}
	for i, header := range headers {
		if err = w.WriteHeader(&header); err == nil && i == len(headers)-1 {
			_, err = w.Write(content)
		}
		if err != nil {
			return site{}, fmt.Errorf("packing the guest: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return site{}, fmt.Errorf("packing the guest: %w", err)
	}
	err = p.engine.Change(ctx, "copying the guest", func(ctx context.Context, api *client.Client) error {
		return api.CopyToContainer(ctx, c.ID, "/", &packed, container.CopyToContainerOptions{})
	})
	if err != nil {
		return site{}, err
	}
	return s, p.runs(ctx, r, s.binary, bin)
}

// runs says why the binary at that path is not the guest, or cannot be run there.
func (p *provider) runs(ctx context.Context, r *room, binary string, bin guestvolume.Binary) error {
	out, code, err := p.execOutput(ctx, r, nil, binary, "--version")
	switch {
	case err != nil:
		return err
	case code != 0:
		return fmt.Errorf("%s ends with exit code %d: %s", binary, code, strings.TrimSpace(out))
	case !strings.Contains(out, bin.Digest):
		return fmt.Errorf("%s is another version", binary)
	}
	return nil
}

// memoryFolders are those of a container's folders in memory in which programs
// can be run.
func memoryFolders(c container.InspectResponse) []string {
	var folders []string
	if c.HostConfig != nil {
		for target, options := range c.HostConfig.Tmpfs {
			if slices.Contains(strings.Split(options, ","), "exec") {
				folders = append(folders, target)
			}
		}
	}
	slices.Sort(folders)
	return folders
}

// copyScript writes stdin to a file in a folder of the user's own that nobody
// else can enter, and puts it in its place at once.
const copyScript = `umask 077 && mkdir -p "$1" && cat >"$1/$2.$$" && chmod 0700 "$1/$2.$$" && mv "$1/$2.$$" "$1/$2"`

func (p *provider) placeByShell(ctx context.Context, r *room, dir string, bin guestvolume.Binary) (site, error) {
	folder := path.Join(dir, ".berth-guest-"+bin.Digest[:digestPart])
	s := site{binary: path.Join(folder, guestName), socket: path.Join(folder, "run", "socket")}
	if p.runs(ctx, r, s.binary, bin) == nil {
		return s, nil
	}
	content, err := bin.Read()
	if err != nil {
		return site{}, err
	}
	out, code, err := p.execOutput(ctx, r, content, "/bin/sh", "-c", copyScript, "sh", folder, guestName)
	if err == nil && code != 0 {
		err = fmt.Errorf("copying it to %s ends with exit code %d: %s", folder, code, strings.TrimSpace(out))
	}
	if err != nil {
		return site{}, err
	}
	return s, p.runs(ctx, r, s.binary, bin)
}

// execOutput runs a small command in a container and returns the beginning of
// what it wrote.
func (p *provider) execOutput(ctx context.Context, r *room, stdin []byte, args ...string) (out string, code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, execTimeout, fmt.Errorf("%s has not ended within %v: %w", args[0], execTimeout, workspace.ErrTransient))
	defer cancel()
	x, err := p.engine.Exec(ctx, r.container, engine.ExecOptions{Cmd: args, User: r.record.User, Stdin: stdin != nil})
	if err != nil {
		return "", 0, err
	}
	defer x.Close()
	stop := context.AfterFunc(ctx, func() { _ = x.Close() })
	defer stop()
	written := make(chan error, 1)
	go func() { // ends with the exec's stream
		_, err := io.Copy(x, bytes.NewReader(stdin))
		written <- errors.Join(err, x.CloseWrite())
	}()
	var text bytes.Buffer
	both := &limitedBuffer{left: maxExecOutput, to: &text}
	err = x.Copy(both, both)
	_ = x.Close()
	writeErr := <-written
	switch {
	case ctx.Err() != nil:
		return "", 0, context.Cause(ctx)
	case err != nil:
		return "", 0, err
	}
	code, err = x.Wait(ctx)
	if err == nil && code == 0 && stdin != nil && writeErr != nil {
		err = fmt.Errorf("writing to %s: %w", args[0], writeErr)
	}
	return text.String(), code, err
}
