package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// Columns of a table: who does a row's work.
const (
	columnBerth    = "berth"
	columnSandboxd = "sandboxd"
	columnHost     = "host"
)

// result is how long some work took each time.
type result struct {
	timing.Samples
	note string // what else is to be told
}

// work does something so often.
type work func(ctx context.Context, b *bench, times int) (result, error)

// row is one kind of work.
type row struct {
	name string
	aim  time.Duration // of berth's p50; zero is none
	n    int
	by   map[string]work // by column
	// newGuest says that the work starts a guest of its own.
	newGuest bool
}

// clientRows are done by the predecessor's own client.
func clientRows() []row {
	return []row{
		{name: "no-op command", aim: 6 * time.Millisecond, n: 200, by: byClient("noop")},
		{name: "20 no-op commands at once", n: 12, by: byClient("noop_20")},
		{name: "stat", aim: 2 * time.Millisecond, n: 200, by: byClient("stat")},
		{name: "write 1 KiB", n: 100, by: byClient("write_small")},
		{name: "read 1 KiB", n: 100, by: byClient("read_small")},
		{name: "write 8 MiB", aim: 45 * time.Millisecond, n: 20, by: byClient("write_large")},
		{name: "read 8 MiB", aim: 45 * time.Millisecond, n: 20, by: byClient("read_large")},
		{name: "list a folder that holds a symlink", aim: 3 * time.Millisecond, n: 60, by: byClient("list_links")},
		{name: "a background child holds stdout", n: 8, by: byClient("background")},
		{name: "timeout of 1 s, a `setsid` child", n: 4, by: byClient("timeout")},
		{name: "open, to the first result", n: 12, by: byClient("open"), newGuest: true},
		{name: "attach to a running one, to the first result", n: 40, by: byClient("attach")},
	}
}

func byClient(name string) map[string]work {
	in := func(column string) work {
		return func(ctx context.Context, b *bench, times int) (result, error) {
			return b.client.do(ctx, column, name, times)
		}
	}
	return map[string]work{columnBerth: in(columnBerth), columnSandboxd: in(columnSandboxd)}
}

// wireRows are done by plain HTTP over kept connections, and by a host in this process
// without a gateway: the difference is what the gateway costs.
func wireRows() []row {
	return []row{
		{name: "no-op command", n: 400, by: byWire(func(ctx context.Context, s *session) error {
			_, err := s.run(ctx, noop.Args...)
			return err
		}, func(ctx context.Context, ws workspace.Workspace) error { return succeed(ctx, ws, noop) })},
		{name: "stat", n: 400, by: byWire(func(ctx context.Context, s *session) error {
			return s.stat(ctx, "small", small)
		}, func(ctx context.Context, ws workspace.Workspace) error {
			_, err := ws.Stat(ctx, "small")
			return err
		})},
		{name: "write 1 KiB", n: 200, by: write("small", small)},
		{name: "read 1 KiB", n: 200, by: read("small", small)},
		{name: "write 8 MiB", n: 20, by: write("large", large)},
		{name: "read 8 MiB", n: 20, by: read("large", large)},
		{name: "list a folder that holds a symlink", n: 200, by: listLinks()},
		{name: "open, to the first result", n: 12, newGuest: true, by: map[string]work{
			columnBerth:    openByWire(func(b *bench) *service { return b.berth }),
			columnSandboxd: openByWire(func(b *bench) *service { return b.sandboxd }),
			columnHost: func(ctx context.Context, b *bench, times int) (result, error) {
				return timed(times, func() (func() error, error) {
					ws, err := b.fresh(ctx)
					if err != nil {
						return nil, err
					}
					return func() error { return b.destroy(ctx, ws) }, nil
				})
			},
		}},
	}
}

// byWire is work on what is there already.
func byWire(call func(context.Context, *session) error, own func(context.Context, workspace.Workspace) error) map[string]work {
	return map[string]work{
		columnBerth:    plain(func(ctx context.Context, b *bench) error { return call(ctx, b.overBerth) }),
		columnSandboxd: plain(func(ctx context.Context, b *bench) error { return call(ctx, b.overSandboxd) }),
		columnHost:     plain(func(ctx context.Context, b *bench) error { return own(ctx, b.own) }),
	}
}

func write(name string, size int) map[string]work {
	return byWire(func(ctx context.Context, s *session) error {
		return s.write(ctx, name, content()[:size])
	}, func(ctx context.Context, ws workspace.Workspace) error {
		return ws.WriteFile(ctx, name, content()[:size])
	})
}

func read(name string, size int) map[string]work {
	return byWire(func(ctx context.Context, s *session) error {
		return s.read(ctx, name, content()[:size])
	}, func(ctx context.Context, ws workspace.Workspace) error {
		data, err := ws.ReadFile(ctx, name)
		if err == nil && !bytes.Equal(data, content()[:size]) {
			err = errors.New("other bytes than were written")
		}
		return err
	})
}

// listLinks is nothing that sandboxd does itself: its client derives it from a command.
func listLinks() map[string]work {
	by := byWire(func(ctx context.Context, s *session) error {
		return s.list(ctx, "links", links)
	}, func(ctx context.Context, ws workspace.Workspace) error {
		list, err := ws.ReadDir(ctx, "links")
		if err == nil && len(list) != links {
			err = fmt.Errorf("%d entries, want %d", len(list), links)
		}
		return err
	})
	delete(by, columnSandboxd)
	return by
}

func openByWire(in func(*bench) *service) work {
	return func(ctx context.Context, b *bench, times int) (result, error) {
		return timed(times, func() (func() error, error) {
			s, err := in(b).open(ctx)
			if err != nil {
				return nil, err
			}
			return func() error { return s.purge(ctx) }, nil
		})
	}
}

// plain is work that leaves nothing to do.
func plain(do func(context.Context, *bench) error) work {
	return func(ctx context.Context, b *bench, times int) (result, error) {
		return timed(times, func() (func() error, error) { return nil, do(ctx, b) })
	}
}

// timed does something so often. What is to be done after it, which may be nil, is not
// measured.
func timed(times int, do func() (after func() error, err error)) (result, error) {
	var taken result
	for range times {
		begin := time.Now()
		after, err := do()
		taken.Samples = append(taken.Samples, time.Since(begin))
		if err == nil && after != nil {
			err = after()
		}
		if err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// measure does a row's work in every column in turns, so that a change of the machine's
// pace hits all.
func (b *bench) measure(ctx context.Context, r row, columns []string) (map[string]result, error) {
	const blocks = 4
	all := map[string]result{}
	for range blocks {
		for _, column := range columns {
			do, ok := r.by[column]
			if !ok {
				continue
			}
			one, err := do(ctx, b, r.n/blocks)
			if err != nil {
				return nil, fmt.Errorf("%s by %s: %w", r.name, column, err)
			}
			all[column] = result{append(all[column].Samples, one.Samples...), one.note}
		}
	}
	for _, taken := range all {
		slices.Sort(taken.Samples)
	}
	return all, nil
}

// Sizes of files, and how many entries there are in the folder of a symlink.
const (
	small = 1 << 10
	large = 8 << 20
	links = 10
)

// linksScript makes that folder.
const linksScript = "mkdir links && cd links && touch 0 1 2 3 4 5 6 7 8 && ln -s 0 link"

// content is bytes, made once for files of every size.
var content = sync.OnceValue(func() []byte {
	data := make([]byte, large)
	for i := range data {
		data[i] = byte(i)
	}
	return data
})

var noop = workspace.Command{Args: []string{"/bin/true"}}

// succeed runs a command that has to exit with 0.
func succeed(ctx context.Context, ws workspace.Commands, cmd workspace.Command) error {
	res, err := ws.Run(ctx, cmd)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", res.ExitCode, res.StderrText())
	}
	return err
}
