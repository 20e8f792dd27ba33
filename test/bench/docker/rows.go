package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// row is one kind of work. Its name is also the predecessor's.
type row struct {
	name, aim    string
	n            int
	ours, engine work
	// newGuest says that the work starts a guest of its own.
	newGuest bool
}

// rows are all that is measured.
func rows() []row {
	return []row{
		{name: "no-op command", aim: "2.5 ms", n: 400, ours: command(noop), engine: plain(engineExec)},
		{name: "20 no-op commands at once", aim: "30 ms", n: 40, ours: concurrently(20, 20)},
		{name: "1,000 no-op commands from 16 callers", aim: "1 s", n: 4, ours: concurrently(1000, 16)},
		{name: "write 1 KiB", aim: "2 ms", n: 200, ours: write(1 << 10)},
		{name: "read 1 KiB", aim: "2 ms", n: 200, ours: read(1 << 10)},
		{name: "write 8 MiB", aim: "60 ms", n: 20, ours: write(8 << 20)},
		{name: "read 8 MiB", aim: "60 ms", n: 20, ours: read(8 << 20)},
		{name: "write 64 MiB", n: 4, ours: write(largest)},
		{name: "read 64 MiB", n: 4, ours: read(largest)},
		{name: "stat", aim: "1 ms", n: 400, ours: plain(stat)},
		{name: "list 1,000 entries", aim: "10 ms", n: 40, ours: plain(list)},
		{name: "a background child holds stdout", aim: "as a no-op, 250 ms at most", n: 20, ours: command(workspace.Command{Script: "sleep 3 & echo x"})},
		{name: "timeout of 1 s, a setsid child", aim: "1.1 s", n: 4, ours: timeout},
		{name: "cold create to first result", aim: "the engine's, + 10 %", n: 16, ours: cold, engine: engineCold, newGuest: true},
		{name: "attach to a running one", aim: "80 ms", n: 12, ours: attachElsewhere},
		{name: "attach to a running one, plugin connected", aim: "3 ms", n: 100, ours: plain(attachHere)},
		{name: "attach to a stopped one", n: 8, ours: attachStopped, newGuest: true},
	}
}

var noop = workspace.Command{Args: []string{"/bin/true"}}

// succeed runs a command that has to exit with 0.
func succeed(ctx context.Context, ws workspace.Commands, cmd workspace.Command) error {
	res, err := ws.Run(ctx, cmd)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", res.ExitCode, res.StderrText())
	}
	return err
}

func command(cmd workspace.Command) work {
	return plain(func(ctx context.Context, b *bench, _ int) error { return succeed(ctx, b.ws, cmd) })
}

// plain is work that needs nothing before and leaves nothing behind.
func plain(do func(ctx context.Context, b *bench, i int) error) work {
	return func(ctx context.Context, b *bench, i int) (round, error) {
		return round{do: func() error { return do(ctx, b, i) }}, nil
	}
}

func concurrently(commands, callers int) work {
	return plain(func(ctx context.Context, b *bench, _ int) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(callers)
		for range commands {
			group.Go(func() error { return succeed(ctx, b.ws, noop) })
		}
		return group.Wait()
	})
}

// largest is the size of the largest file.
const largest = 64 << 20

// content is bytes that do not compress, made once for files of every size.
var content = sync.OnceValue(func() []byte {
	data := make([]byte, largest)
	state := uint32(1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	return data
})

func fileName(size, i int) string { return fmt.Sprintf("file-%d-%d", size, i%4) }

func write(size int) work {
	return plain(func(ctx context.Context, b *bench, i int) error {
		w, err := b.ws.Create(ctx, fileName(size, i), workspace.WriteOptions{})
		if err != nil {
			return err
		}
		_, err = io.Copy(w, bytes.NewReader(content()[:size]))
		return errors.Join(err, w.Close())
	})
}

// read reads what write has left.
func read(size int) work {
	return plain(func(ctx context.Context, b *bench, i int) error {
		r, err := b.ws.Open(ctx, fileName(size, i), workspace.ReadOptions{})
		if err != nil {
			return err
		}
		want, chunk := content()[:size], make([]byte, 128<<10)
		for err == nil {
			var n int
			n, err = io.ReadFull(r, chunk)
			if n > len(want) || !bytes.Equal(chunk[:n], want[:n]) {
				return errors.Join(errors.New("other bytes than were written"), r.Close())
			}
			want = want[n:]
		}
		if len(want) > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.Join(fmt.Errorf("%d bytes are missing: %w", len(want), err), r.Close())
		}
		return r.Close()
	})
}

func stat(ctx context.Context, b *bench, _ int) error {
	_, err := b.ws.Stat(ctx, "small")
	return err
}

func list(ctx context.Context, b *bench, _ int) error {
	entries, err := b.ws.ReadDir(ctx, "many")
	if err == nil && len(entries) != 1000 {
		err = fmt.Errorf("%d entries", len(entries))
	}
	return err
}

func timeout(ctx context.Context, b *bench, _ int) (round, error) {
	return round{do: func() error {
		_, err := b.ws.Run(ctx, workspace.Command{Script: "setsid sleep 4242 & sleep 4242", Timeout: time.Second})
		var timedOut *workspace.TimeoutError
		if !errors.As(err, &timedOut) {
			return fmt.Errorf("want a timeout, got %w", err)
		}
		return nil
	}, after: func() error {
		res, err := b.ws.Run(ctx, workspace.Command{Script: "ps -o args | grep '[s]leep 4242'"})
		if err == nil && res.ExitCode == 0 {
			err = fmt.Errorf("left running: %s", res.StdoutText())
		}
		return err
	}}, nil
}

func cold(ctx context.Context, b *bench, _ int) (round, error) {
	var ws workspace.Workspace
	return round{
		do: func() (err error) { ws, err = b.fresh(ctx); return err },
		after: func() error {
			ref, _ := ws.Ref()
			return b.host.Destroy(ctx, ref)
		},
	}, nil
}

// attachElsewhere is from another host, whose plugin runs but has no connection.
func attachElsewhere(ctx context.Context, b *bench, _ int) (round, error) {
	h, err := host.New(b.config)
	if err != nil {
		return round{}, err
	}
	if _, err := h.Check(ctx, provider); err != nil {
		return round{}, errors.Join(err, h.Close())
	}
	return round{do: func() error { return attach(ctx, b, h) }, after: h.Close, host: h}, nil
}

func attachHere(ctx context.Context, b *bench, _ int) error { return attach(ctx, b, b.host) }

func attach(ctx context.Context, b *bench, h *host.Host) error {
	ref, _ := b.ws.Ref()
	ws, err := h.Attach(ref)
	if err != nil {
		return err
	}
	return succeed(ctx, ws, noop)
}

func attachStopped(ctx context.Context, b *bench, _ int) (round, error) {
	ref, _ := b.ws.Ref()
	if err := b.engine.ContainerKill(ctx, ref.ID, "KILL"); err != nil {
		return round{}, err
	}
	return round{do: func() error { return attach(ctx, b, b.host) }}, nil
}

// engineExec is the same no-op through the engine's API: create, start, inspect.
func engineExec(ctx context.Context, b *bench, _ int) error { return b.exec(ctx, b.direct) }

func (b *bench) exec(ctx context.Context, id string) error {
	made, err := b.engine.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: noop.Args, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	stream, err := b.engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := io.Copy(io.Discard, stream.Reader); err != nil {
		return err
	}
	told, err := b.engine.ContainerExecInspect(ctx, made.ID)
	if err == nil && (told.Running || told.ExitCode != 0) {
		err = fmt.Errorf("exec: running %v, exit code %d", told.Running, told.ExitCode)
	}
	return err
}

func engineCold(ctx context.Context, b *bench, _ int) (round, error) {
	undo := len(b.undo)
	return round{
		do: func() error {
			id, err := b.startDirect(ctx)
			if err != nil {
				return err
			}
			return b.exec(ctx, id)
		},
		after: func() error {
			remove := b.undo[undo]
			b.undo = b.undo[:undo]
			return remove()
		},
	}, nil
}
