//go:build linux

package host_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// BenchmarkStat is one small call: through the plugin process, and, as the
// baseline, through the same protocol to the same provider in this process.
func BenchmarkStat(b *testing.B) {
	b.Run("plugin", func(b *testing.B) {
		h, ws := newStateProcess(b)
		stat(b, ws)
		throughPlugin(b, h)
	})
	b.Run("in-process", func(b *testing.B) {
		h, err := host.New(host.Config{DataDir: b.TempDir(), Providers: map[string]host.Provider{"state": {InProcess: state.Plugin("bench")}}})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close()
		ws, err := h.Workspace("state")
		if err != nil {
			b.Fatal(err)
		}
		stat(b, ws)
	})
}

func stat(b *testing.B, ws workspace.Workspace) {
	ctx := context.Background()
	if err := ws.WriteFile(ctx, "dir/f", []byte("x")); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := ws.Stat(ctx, "dir/f"); err != nil {
			b.Fatal(err)
		}
	}
}

// throughPlugin shows that a figure went through a plugin process.
func throughPlugin(b *testing.B, h *host.Host) {
	b.StopTimer()
	plugin := pid(b, h)
	if plugin == os.Getpid() {
		b.Fatal("the plugin is this process")
	}
	b.ReportMetric(1, "plugin-processes")
}

// BenchmarkNoop is a command that does nothing: through the plugin local, and,
// as the baseline, by fork and exec.
func BenchmarkNoop(b *testing.B) {
	b.Run("plugin", func(b *testing.B) {
		h, ws := newLocal(b)
		ctx := context.Background()
		for b.Loop() {
			if res, err := ws.Run(ctx, workspace.Command{Args: []string{"/bin/true"}}); err != nil || res.ExitCode != 0 {
				b.Fatal(res, err)
			}
		}
		throughPlugin(b, h)
	})
	b.Run("fork-exec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStart is from nothing to a plugin's first answer.
func BenchmarkStart(b *testing.B) {
	dir, data := pluginDir(b), b.TempDir()
	for b.Loop() {
		h, err := host.New(host.Config{Providers: stateProvider(), PluginDirs: []string{dir}, DataDir: data})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Check(context.Background(), "state"); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := h.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkFile writes and reads files through the plugin local, and tells by
// how much the memory of both processes grew above idle at its peak.
func BenchmarkFile(b *testing.B) {
	for _, size := range []int64{1 << 20, 256 << 20} {
		name := fmt.Sprintf("%dMiB", size>>20)
		b.Run("write/"+name, func(b *testing.B) {
			measureFile(b, size, func(ctx context.Context, ws workspace.Workspace) error {
				w, err := ws.Create(ctx, "f", workspace.WriteOptions{})
				if err != nil {
					return err
				}
				if _, err := io.Copy(w, io.LimitReader(zeros{}, size)); err != nil {
					return err
				}
				return w.Close()
			})
		})
		b.Run("read/"+name, func(b *testing.B) {
			measureFile(b, size, func(ctx context.Context, ws workspace.Workspace) error {
				r, err := ws.Open(ctx, "f", workspace.ReadOptions{})
				if err != nil {
					return err
				}
				defer r.Close()
				if n, err := io.Copy(io.Discard, r); err != nil || n != size {
					return fmt.Errorf("%d bytes: %w", n, err)
				}
				return nil
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func measureFile(b *testing.B, size int64, do func(context.Context, workspace.Workspace) error) {
	h, ws := newLocal(b)
	ctx := context.Background()
	w, err := ws.Create(ctx, "f", workspace.WriteOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(w, io.LimitReader(zeros{}, size)); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	plugin := pid(b, h)
	runtime.GC()
	host, child := watchMemory(b, os.Getpid()), watchMemory(b, plugin)
	b.SetBytes(size)
	for b.Loop() {
		if err := do(ctx, ws); err != nil {
			b.Fatal(err)
		}
	}
	throughPlugin(b, h)
	b.ReportMetric(host(), "host-MiB-above-idle")
	b.ReportMetric(child(), "plugin-MiB-above-idle")
}

// watchMemory samples a process's resident memory until it is asked by how much
// that rose at its peak, in MiB.
func watchMemory(b *testing.B, pid int) func() float64 {
	idle := resident(b, pid)
	peak, stop, done := idle, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				peak = max(peak, resident(b, pid))
			case <-stop:
				return
			}
		}
	}()
	return func() float64 {
		close(stop)
		<-done
		return float64(peak-idle) / 1024
	}
}

// resident is VmRSS in KiB.
func resident(b *testing.B, pid int) int {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		b.Error(err)
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				b.Error(err)
			}
			return kib
		}
	}
	b.Errorf("no VmRSS of process %d", pid)
	return 0
}
