package docker

import (
	"context"
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
)

// room is a container that is open: what all handles to it share.
type room struct {
	id          string // the workspace's
	container   string // the engine's
	name        string
	incarnation string
	record      record
	env         map[string]string // the runtime's
	// One of them is the way in.
	guest *guest.Workspace
	exec  *execpath.Workspace

	uses int // guarded by the provider's mutex
}

func (r *room) key() string { return r.incarnation }

// guestWorkspace is a container with a guest, which answers by itself.
type guestWorkspace struct {
	*guest.Workspace
	opened
}

var (
	_ sdk.Workspace = (*guestWorkspace)(nil)
	_ sdk.Watcher   = (*guestWorkspace)(nil)
	_ sdk.Environer = (*guestWorkspace)(nil)
	_ sdk.Environer = (*execWorkspace)(nil)
)

// Close ends this use of the connection, which others may have as well.
func (w *guestWorkspace) Close() error { return w.close() }

// execWorkspace is a container that is reached through the engine alone.
type execWorkspace struct {
	*execpath.Workspace
	use opened
}

// Environ is what the workspace's runtime has for every command (contract C9).
func (w *execWorkspace) Environ() map[string]string { return w.use.Environ() }

// Close ends this use of it.
func (w *execWorkspace) Close() error { return w.use.close() }

// opened is what workspaces of every placement have.
type opened struct {
	provider *provider
	room     *room
	once     *sync.Once
}

// ID is the container's name, but for the longer one of a short name.
func (o opened) ID() string { return o.room.id }

// Incarnation changes with the container.
func (o opened) Incarnation() string { return o.room.incarnation }

// Environ is what the workspace's runtime has for every command (contract C9).
func (o opened) Environ() map[string]string { return o.room.env }

// Watch waits for the container's end (contract L7).
func (o opened) Watch(ctx context.Context) error {
	return o.provider.watch(ctx, o.room)
}

func (o opened) close() (err error) {
	o.once.Do(func() { err = o.provider.leave(o.room) })
	return err
}

// connect opens a running container.
func (p *provider) connect(ctx context.Context, id string, c container.InspectResponse, r record) (sdk.Workspace, error) {
	fresh := &room{id: id, container: c.ID, name: nameOf(c), incarnation: incarnationOf(c, r), record: r, env: p.runtimeEnv(r), uses: 1}
	if shared := p.enter(fresh.key()); shared != nil {
		return p.opened(shared), nil
	}
	sdk.Report(ctx, sdk.Progress{Text: "connecting to container " + fresh.name})
	if err := p.reach(ctx, fresh, c); err != nil {
		return nil, err
	}
	p.mu.Lock()
	shared := p.rooms[fresh.key()]
	if shared == nil {
		p.rooms[fresh.key()] = fresh
		p.mu.Unlock()
		return p.opened(fresh), nil
	}
	shared.uses++ // another was faster
	p.mu.Unlock()
	if err := fresh.close(); err != nil {
		p.logger.Warn("closing a connection", "container", fresh.name, "error", err)
	}
	return p.opened(shared), nil
}

// enter uses a room that is there.
func (p *provider) enter(key string) *room {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rooms[key]
	if r != nil {
		r.uses++
	}
	return r
}

// leave ends one use of a room.
func (p *provider) leave(r *room) error {
	p.mu.Lock()
	r.uses--
	last := r.uses == 0
	if last && p.rooms[r.key()] == r {
		delete(p.rooms, r.key())
	}
	p.mu.Unlock()
	if last {
		return r.close()
	}
	return nil
}

func (r *room) close() error {
	if r.guest != nil {
		return r.guest.Close()
	}
	return r.exec.Close()
}

func (p *provider) opened(r *room) sdk.Workspace {
	o := opened{provider: p, room: r, once: &sync.Once{}}
	if r.guest == nil {
		return &execWorkspace{Workspace: r.exec, use: o}
	}
	return &guestWorkspace{Workspace: r.guest, opened: o}
}
