package docker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
	"github.com/berth-dev/berth/shared/workspace"
)

// reach finds the way into a container: its guest as it was made with, a guest
// beside somebody else's processes, or without one the engine's own calls.
func (p *provider) reach(ctx context.Context, r *room, c container.InspectResponse) error {
	switch r.record.Guest {
	case guestInit:
		return p.reachGuest(ctx, r, c.Config.Labels[labelGuest], func(ctx context.Context) (net.Conn, error) {
			return p.dial(ctx, r, guestBinary, guestSocket)
		})
	case guestExec:
		return p.reachGuest(ctx, r, c.Config.Labels[labelGuest], func(ctx context.Context) (net.Conn, error) {
			return p.dialDaemon(ctx, r, site{binary: guestBinary, socket: guestSocket}, func(ctx context.Context) error {
				return p.replaceGuest(ctx, c) // its volume may have been swept, and made anew for it
			})
		})
	case guestForeign:
		if _, err := p.identifyIn(ctx, c, r.record.User); errors.Is(err, workspace.ErrInvalid) {
			return fmt.Errorf("config key user: container %s: %w", r.name, err)
		}
		reason, err := p.reachForeign(ctx, r, c)
		if err == nil {
			r.record.Guest = guestExec
			return nil
		}
		if errors.Is(err, workspace.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		p.logger.Warn("no guest in a container: every command costs an exec of the engine", "container", r.name, "reason", reason)
		r.record.Guest, r.record.Reason = guestOff, reason
		if who, err := p.identifyIn(ctx, c, firstOf(r.record.User, c.Config.User)); err == nil {
			r.record.UID, r.record.GID = who.uid, who.gid // else what it makes is root's, as all of it may be
		}
	}
	return p.reachExec(ctx, r, c)
}

// reachGuest connects to a guest of a digest.
func (p *provider) reachGuest(ctx context.Context, r *room, digest string, dial func(context.Context) (net.Conn, error)) error {
	ws, err := guest.Open(ctx, guest.Options{
		Dial:    dial,
		Check:   func(_ context.Context, hello guest.Hello) error { return checkDigest(hello, digest) },
		Explain: func(ctx context.Context, err error) error { return p.explain(ctx, r, err) },
		Version: p.version,
	})
	if err != nil {
		return err
	}
	r.guest = ws
	return nil
}

// checkDigest makes sure that a guest is the one that was placed.
func checkDigest(hello guest.Hello, want string) error {
	if got := hex.EncodeToString(hello.Digest[:]); want != "" && got != want {
		return fmt.Errorf("the guest is not the one that was placed: its digest is %s, want %s: %w", got, want, workspace.ErrUnavailable)
	}
	return nil
}

// dial connects to a guest's socket. The exec's stderr tells what was wrong when
// the stream ends at once.
func (p *provider) dial(ctx context.Context, r *room, binary, socket string) (net.Conn, error) {
	if r.incarnation != r.container {
		// Its files ended with the last stop: another start is another workspace.
		c, err := p.inspect(ctx, r.container)
		if gone := p.stateOf(ctx, r, c, err); gone != nil {
			return nil, gone
		}
	}
	x, err := p.engine.Exec(ctx, r.container, engine.ExecOptions{
		Cmd: []string{binary, "connect", "--socket", socket}, User: r.record.User, Stdin: true,
	})
	if err != nil {
		return nil, p.explain(ctx, r, err)
	}
	return &guestConn{Conn: x.Conn()}, nil
}

// guestConn adds to the end of a stream what the program at its other end has
// said about it.
type guestConn struct{ *engine.Conn }

func (c *guestConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 {
		if text := strings.TrimSpace(c.Stderr()); text != "" {
			return 0, fmt.Errorf("%w: %s", err, text)
		}
	}
	return n, err
}

// reachExec opens a container without a guest.
func (p *provider) reachExec(ctx context.Context, r *room, c container.InspectResponse) error {
	if covered(c, r.record.WorkDir) {
		// Below the top of a folder in memory: nobody could make it before.
		if _, _, err := p.execOutput(ctx, r, nil, "mkdir", "-p", r.record.WorkDir); err != nil {
			return err
		}
	}
	dir, err := p.canonical(ctx, c, r.record.WorkDir)
	if err != nil {
		return err
	}
	ws, err := execpath.New(ctx, execpath.Config{
		Engine: p.engine, ContainerID: r.container, ID: r.id, Incarnation: r.incarnation,
		WorkingDir: dir, User: r.record.User, UID: r.record.UID, GID: r.record.GID,
		Available: func(ctx context.Context) error {
			gone, err := p.settled(ctx, r)
			return errors.Join(gone, err)
		},
		Watch: func(ctx context.Context) error { return p.watch(ctx, r) },
	})
	if err != nil {
		return err
	}
	if slices.Contains(ws.Withhold(), workspace.FeatureCommands) {
		p.logger.Warn("a container with neither a guest nor a shell: there are files only", "container", r.name)
	}
	r.exec = ws
	return nil
}

// canonical resolves the links in the path of a directory, as far as the archive
// sees them: what lies in memory it does not.
func (p *provider) canonical(ctx context.Context, c container.InspectResponse, dir string) (string, error) {
	at := "/"
	for element := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		at = path.Join(at, element)
		if covered(c, at) {
			continue
		}
		stat, err := p.stat(ctx, c, at)
		if errdefs.IsNotFound(err) {
			if _, gone := p.inspect(ctx, c.ID); gone != nil {
				return "", gone
			}
			return "", invalidKey("work_dir", "%s: there is no %s in container %s", dir, at, nameOf(c)) // not the container
		}
		if err != nil {
			return "", fmt.Errorf("finding the working directory: %w", err)
		}
		if path.IsAbs(stat.LinkTarget) {
			at = path.Clean(stat.LinkTarget)
		}
	}
	return at, nil
}
