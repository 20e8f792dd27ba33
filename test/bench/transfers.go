package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/bench/internal/proc"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// transfers writes and reads files of two sizes through both providers, against
// the same provider without host and plugin, and tells the peak memory of both
// processes above what they held before.
func transfers(ctx context.Context, b *bench) error {
	state, err := directState(ctx, b)
	if err != nil {
		return err
	}
	folder := filepath.Join(b.dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	local, err := posix.Open(posix.Config{Dir: folder, ID: "bench", Incarnation: "bench"})
	if err != nil {
		return err
	}
	for provider, direct := range map[string]sdk.Filesystem{"state": state, "local": local} {
		ws, err := b.host.Workspace(provider)
		if err != nil {
			return err
		}
		for _, size := range []int64{1 << 20, 256 << 20} {
			if err := b.transfer(ctx, provider, ws, direct, size); err != nil {
				return fmt.Errorf("%s, %d MiB: %w", provider, size>>20, err)
			}
		}
	}
	return nil
}

func (b *bench) transfer(ctx context.Context, provider string, ws workspace.Workspace, direct sdk.Filesystem, size int64) error {
	if _, err := ws.WorkingDir(ctx); err != nil {
		return err
	}
	rounds := int(max(3, (64<<20)/size))
	for _, way := range []struct {
		name string
		work func(context.Context, workspace.Filesystem, string, int64) error
	}{{"write", write}, {"read", read}} {
		pid := b.pid(provider)
		debug.FreeOSMemory()
		idleHost, idlePlugin := proc.Memory(os.Getpid(), "VmRSS"), proc.Memory(pid, "VmRSS")
		if err := resetPeak(os.Getpid()); err != nil {
			return err
		}
		if err := resetPeak(pid); err != nil {
			return err
		}
		spent := cpuTime(pid)
		ours, err := measure(rounds, plain(func() error { return way.work(ctx, ws, "bench.bin", size) }))
		if err != nil {
			return err
		}
		peakHost, peakPlugin := proc.Memory(os.Getpid(), "VmHWM"), proc.Memory(pid, "VmHWM")
		spent = cpuTime(pid) - spent
		base, err := measure(rounds, plain(func() error {
			return way.work(ctx, direct, direct.(interface{ WorkingDir() string }).WorkingDir()+"/bench.bin", size)
		}))
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s %d MiB, %s\t%.0f\t%.2f\tthe same in process\t%.0f\t+%d MiB\t+%d MiB\tpid %d, %v\n",
			way.name, size>>20, provider, rate(size, ours), float64(base.At(50))/float64(ours.At(50)), rate(size, base),
			(peakHost-idleHost)>>20, (peakPlugin-idlePlugin)>>20, pid, spent.Round(time.Millisecond))
	}
	return nil
}

func rate(size int64, s timing.Samples) float64 { return float64(size) / 1e6 / s.At(50).Seconds() }

func write(ctx context.Context, files workspace.Filesystem, path string, size int64) error {
	w, err := files.Create(ctx, path, workspace.WriteOptions{})
	if err != nil {
		return err
	}
	if _, err := io.CopyN(w, pattern{}, size); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Close()
}

func read(ctx context.Context, files workspace.Filesystem, path string, size int64) error {
	r, err := files.Open(ctx, path, workspace.ReadOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != size {
		err = fmt.Errorf("read %d bytes of %d", n, size)
	}
	return err
}

// pattern is endless and cheap.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i)
	}
	return len(p), nil
}
