package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

const provider = "docker"

// bench is what every row needs: a host with the docker provider, one of its
// workspaces, and the engine itself with a container of its own.
type bench struct {
	image  string
	host   *host.Host
	ws     workspace.Workspace
	engine *client.Client
	direct string          // the container of the engine's own rows
	dir    string          // scratch
	config host.Config     // of host, for another one
	made   []workspace.Ref // to be destroyed at the end
	undo   []func() error  // the rest of it
}

func open(ctx context.Context, bin, image string) (_ *bench, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	b := &bench{image: image}
	defer func() { //nolint:contextcheck // what was made is removed, though the run was cancelled
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
		return nil, err
	}
	b.undo = append(b.undo, func() error { return os.RemoveAll(b.dir) })
	if b.engine, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
		return nil, err
	}
	b.undo = append(b.undo, b.engine.Close)
	b.config = hostConfig(bin, b.dir, image)
	if b.host, err = host.New(b.config); err != nil {
		return nil, err
	}
	b.undo = append(b.undo, b.host.Close)
	if b.ws, err = b.fresh(ctx); err != nil {
		return nil, err
	}
	if b.direct, err = b.startDirect(ctx); err != nil {
		return nil, err
	}
	return b, b.fill(ctx)
}

func (b *bench) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, ref := range b.made {
		errs = append(errs, b.host.Destroy(ctx, ref))
	}
	for _, undo := range slices.Backward(b.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// fresh creates a workspace and runs a first command in it.
func (b *bench) fresh(ctx context.Context) (workspace.Workspace, error) {
	ws, err := b.host.Workspace(provider)
	if err != nil {
		return nil, err
	}
	err = succeed(ctx, ws, noop)
	if ref, ok := ws.Ref(); ok {
		b.made = append(b.made, ref)
	}
	return ws, err
}

// fill makes what the rows find in the workspace.
func (b *bench) fill(ctx context.Context) error {
	for i := range 1000 {
		if err := b.ws.WriteFile(ctx, fmt.Sprintf("many/%d", i), nil); err != nil {
			return err
		}
	}
	return b.ws.WriteFile(ctx, "small", make([]byte, 1<<10))
}

// startDirect makes a container for the engine's own rows.
func (b *bench) startDirect(ctx context.Context) (id string, err error) {
	yes := true
	made, err := b.engine.ContainerCreate(ctx, &container.Config{Image: b.image, Cmd: []string{"sleep", "infinity"}}, &container.HostConfig{Init: &yes}, nil, nil, "")
	if err != nil {
		return "", err
	}
	b.undo = append(b.undo, func() error {
		return b.engine.ContainerRemove(context.WithoutCancel(ctx), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	return made.ID, b.engine.ContainerStart(ctx, made.ID, container.StartOptions{})
}

// work prepares the i-th round of something.
type work func(ctx context.Context, b *bench, i int) (round, error)

// round is what is measured, and what is done after it, which may be nil.
type round struct {
	do, after func() error
	// host is the one that does it, if not the bench's own.
	host *host.Host
}

// measure does a row's work and the engine's in turns, so that a change of the
// machine's pace hits both.
func (b *bench) measure(ctx context.Context, r row) (ours, engine timing.Samples, err error) {
	const blocks = 4
	for block := range blocks {
		n := max(r.n/blocks, 1)
		if ours, err = b.times(ctx, ours, block*n, n, r.ours); err != nil {
			return nil, nil, err
		}
		if r.engine == nil {
			continue
		}
		if engine, err = b.times(ctx, engine, block*n, max(n/4, 1), r.engine); err != nil {
			return nil, nil, fmt.Errorf("the engine itself: %w", err)
		}
	}
	slices.Sort(ours)
	slices.Sort(engine)
	return ours, engine, nil
}

func (b *bench) times(ctx context.Context, taken timing.Samples, from, n int, do work) (timing.Samples, error) {
	for i := range n {
		r, err := do(ctx, b, from+i)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		err = r.do()
		taken = append(taken, time.Since(begin))
		if r.after != nil {
			err = errors.Join(err, r.after())
		}
		if err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// report tells the memory of all three processes.
func (b *bench) report(ctx context.Context) error {
	guests, err := b.guestPIDs(ctx, "berth-")
	if err != nil {
		return err
	}
	var guest int64
	for _, pid := range guests {
		guest += proc.Memory(pid, "RssAnon")
	}
	plugin := pluginPID(b.host)
	fmt.Printf("\npeak memory: host %d MiB (with the %d MiB that it writes), plugin %d MiB; all processes of the guest hold %d MiB of their own now\n",
		proc.Memory(os.Getpid(), "VmHWM")>>20, largest>>20, proc.Memory(plugin, "VmHWM")>>20, guest>>20)
	return nil
}

func pluginPID(h *host.Host) int {
	for _, p := range h.Providers() {
		if p.Name == provider {
			return p.PID
		}
	}
	return 0
}

// guestPIDs are the workspace's processes whose command line holds all of words.
func (b *bench) guestPIDs(ctx context.Context, words ...string) ([]int, error) {
	ref, _ := b.ws.Ref()
	return proc.InContainer(ctx, b.engine, ref.ID, words...)
}
